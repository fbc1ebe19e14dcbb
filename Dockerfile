# Serves a model folder on the CPU:
#   docker build -t segue .
#   docker run --rm -p 8000:8000 -v "$PWD/model:/model:ro" -e SEGUE_TOKEN=a-long-word segue
FROM python:3.12-slim

# PyTorch's own index has it without CUDA, which is a tenth of the size
ARG PIP_EXTRA_INDEX_URL=https://download.pytorch.org/whl/cpu
ENV PYTHONUNBUFFERED=1
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
COPY recipes ./recipes
COPY constraints ./constraints
# this folder is installed, which has no version to pin; what it needs is of the versions that were tested
# hadolint ignore=DL3013
RUN pip install --no-cache-dir --constraint constraints/tested.txt ".[serve]" && useradd --create-home --uid 10001 segue

USER 10001
WORKDIR /home/segue
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
    CMD ["python", "-c", "import urllib.request as u; u.urlopen('http://127.0.0.1:8000/health', timeout=4)"]
ENTRYPOINT ["segue", "serve"]
CMD ["/model", "--host", "0.0.0.0", "--port", "8000"]
