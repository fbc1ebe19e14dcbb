# make demo and make test need Python (>= 3.11) and make, nothing else: they build their own environment.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
STAMP_DOCS := $(VENV)/.docs-ready

.PHONY: demo test test-portable test-lowest campaign gpu-check audit slow results results-check voc256-2 bench docs lint format clean help

help:
	@echo "make demo    four methods on the embedded data set, a table and a page (a few minutes)"
	@echo "make test    the test suite (a few minutes)"
	@echo "make test-portable  the numeric tests as on other processors: four runs"
	@echo "make test-lowest  the quick tests with the lowest allowed versions of all dependencies"
	@echo "make campaign  strange input, failing disks, hostile requests: a table and docs/reliability.md (half an hour)"
	@echo "make gpu-check  whether all of it works on this machine's GPU: a JSON file to send to us"
	@echo "make audit   known weaknesses of the installed packages (needs the net)"
	@echo "make slow    the tests that train for minutes"
	@echo "make results-check  whether the stored results are those of today's defaults"
	@echo "make results the pages of results, from the records; runs what is missing"
	@echo "make voc256-2  the runs of the benchmark that are missing, in their order (hours)"
	@echo "make bench   time and memory as ratios: tables, JSON and docs/performance.md (half an hour)"
	@echo "make docs    the site with the API reference, in site/; a broken link is an error"
	@echo "make lint    style, format and type checks"
	@echo "make format  format the code"

$(STAMP): pyproject.toml
	@test -d $(VENV) || $(PYTHON) -m venv $(VENV)
	@echo "Setting up $(VENV) (about two minutes, 5.5 GB) ..."
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[dev]"
	@touch $(STAMP)

demo: $(STAMP)
	@$(BIN)/segue demo

TWO := -n 2 --dist loadfile

test: $(STAMP)
	@$(BIN)/python -m pytest $(TWO)

NUMBERS := tests/losses tests/models tests/methods tests/engine tests/data
PORTABLE := $(BIN)/python -m pytest $(NUMBERS)

test-portable: $(STAMP)
	@echo "this processor, one thread" && $(PORTABLE) $(TWO)
	@echo "this processor, two threads" && SEGUE_TEST_THREADS=2 $(PORTABLE)
	@echo "AVX2" && ATEN_CPU_CAPABILITY=avx2 ONEDNN_MAX_CPU_ISA=AVX2 $(PORTABLE) $(TWO)
	@echo "no AVX" && ATEN_CPU_CAPABILITY=default ONEDNN_MAX_CPU_ISA=SSE41 $(PORTABLE) $(TWO)

# its tools are not part of the development environment
STAMP_CAMPAIGN := $(VENV)/.campaign-ready
$(STAMP_CAMPAIGN): $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[campaign]"
	@touch $(STAMP_CAMPAIGN)

campaign: $(STAMP_CAMPAIGN)
	@$(BIN)/python -m campaign --save results/campaign.json --page docs/reliability.md

# without a GPU, or with DEVICE=cpu, a rehearsal of itself
DEVICE ?= auto
gpu-check: $(STAMP)
	@$(BIN)/python -m benchmarks.gpu_check --device $(DEVICE) --save gpu-check.json

# the lowest Python, or the one that there is; old packages warn of what new ones below them will drop
LOWEST := .venv-lowest
LOWEST_PYTHON ?= 3.11
test-lowest:
	@command -v uv > /dev/null || { echo "make test-lowest needs uv: pip install uv"; exit 1; }
	@uv venv --quiet --clear --python $(LOWEST_PYTHON) $(LOWEST) 2> /dev/null || uv venv --quiet --clear --python $(PYTHON) $(LOWEST)
	@echo "Lowest allowed versions, $$($(LOWEST)/bin/python --version)"
	@VIRTUAL_ENV=$(LOWEST) uv pip install --quiet --resolution lowest-direct --editable ".[dev]"
	@$(LOWEST)/bin/python -m pytest $(TWO) -W ignore::DeprecationWarning

# without its service pip-audit skips every package, and says that there is no weakness
AUDITED := import json, os, sys; \
	listed = json.load(open("$(VENV)/audit.json"))["dependencies"] if os.path.exists("$(VENV)/audit.json") else []; \
	checked = sum("vulns" in each for each in listed); \
	sys.exit(None if checked else "make audit: the list of known weaknesses gives no answer here. Nothing was checked.")
audit: $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check pip-audit
	@rm -f $(VENV)/audit.json
	@$(BIN)/python -m pip_audit --skip-editable --format json --output $(VENV)/audit.json 2> /dev/null; \
		$(BIN)/python -c '$(AUDITED)'
	@$(BIN)/python -m pip_audit --skip-editable

slow: $(STAMP)
	@$(BIN)/python -m pytest -m slow

results-check: $(STAMP)
	@$(BIN)/python -m pytest -m results tests/test_results.py

# the methods of the stored results; the pages say so
METHODS := finetune,lwf,ewc,lwf_mc,pi,rw,ilt,mib,incseg,plop,sdr,ssul,caf,dft,joint
VOC256 := data.root=data/voc256 model.weights=weights/mobilenetv2_100.safetensors

results: $(STAMP)
	@$(BIN)/segue ablate all --on scenes --seeds 3 --out results/ablations --page docs/results/scenes-ablations.md
	@$(BIN)/segue compare --on scenes --split 4-2 --methods $(METHODS) --seeds 3 --out results/compare --page docs/results/scenes-4-2-methods.md
	@$(BIN)/segue tune voc256.yaml --on voc --split 15-1 --out results/voc256/tuning \
		--page docs/results/voc256-15-1-tuning.md $(VOC256)
	@$(BIN)/segue tune voc256-15-5.yaml --on voc --split 15-5 --out results/voc256/tuning \
		--used results/voc256/tuning/voc-15-1-overlapped/choice.yaml \
		--page docs/results/voc256-15-5-tuning.md $(VOC256)
	@$(BIN)/segue compare voc256.yaml --on voc --split 15-1 --methods $(METHODS) --seeds 3 --out results/voc256/compare \
		--page docs/results/voc256-15-1.md $(VOC256)
	@$(BIN)/segue compare voc256-15-5.yaml --on voc --split 15-5 --methods $(METHODS) --seeds 3 --out results/voc256/compare \
		--page docs/results/voc256-15-5.md $(VOC256)
	@$(BIN)/segue compare voc256-caf-ideas.yaml --on voc --split 15-1 \
		--methods mib,caf,caf-alone,caf-imagined --seeds 3 --out results/voc256/caf-imagined \
		--page docs/results/voc256-caf-imagined.md scenario.hold_out=0.2 $(VOC256)
	@$(BIN)/segue compare voc256.yaml --on examples/mosaic.py --split 8-1 --methods mib,caf --seeds 3 \
		--out results/mosaic --page docs/results/mosaic-8-1.md model.weights=weights/mobilenetv2_100.safetensors
	@$(BIN)/segue ablate table3 voc256.yaml --on voc --split 15-1 --mode overlapped --seeds 3 \
		--out results/voc256/ablations --page docs/results/voc256-15-1-ablations.md \
		scenario.hold_out=0.2 method.params.layer_since=1 $(VOC256)
	@$(BIN)/segue report results/voc256/compare/*/*-s? --out results/voc256.csv --summary --quiet
	@$(BIN)/segue report results/compare/*/*-s? --out results/scenes.csv --summary --quiet
	@for file in results/voc256-2.csv docs/results/figures/voc256-2-ranks.svg; do \
		$(BIN)/segue report results/voc256-2/compare/study.jsonl --out $$file --summary --quiet || exit 1; done
	@for item in 1 2 3 4 5 6 7; do $(BIN)/segue reproduce table$$item --scale voc256 --from-records \
		--page docs/results/table$$item.md --quiet > /dev/null || exit 1; done

# the benchmark (docs/benchmark.md): each line goes on where it stopped, so does the whole
BOTH2 := model.weights=weights/resnet18.safetensors train.precision=bf16 train.cache_disk_gb=8
VOC2 := data.root=data/voc256 $(BOTH2)
ADE2 := data.root=data/ade11 $(BOTH2)
CAF2 := caf,caf-similar,caf-imagined,caf-no-memory,caf-paper,caf-official
METHODS2 := mib,mib-similar,$(CAF2),finetune,lwf,ewc,lwf_mc,pi,rw,ilt,incseg,plop,sdr,ssul,dft,dkd,star,rcil,mbs,acil,joint
BEST2 := mib,caf,caf-similar,caf-imagined,sdr,mbs,ssul,acil,joint
FORM2 := mib,caf,caf-imagined,caf-imagined-no-layer,caf-similar,caf-similar-no-layer,caf-similar-plain,caf-similar-bare
ONCE2 := caf-similar-3,caf-similar-3-ad-10,caf-imagined-bare
COMPARE2 := $(BIN)/segue compare voc256-2.yaml --out results/voc256-2/compare

voc256-2: $(STAMP)
	@$(BIN)/segue tune voc256-2.yaml --on voc --split 15-1 --by hIoU --out results/voc256-2/tuning $(VOC2)
	@for split in 15-1 15-5; do $(COMPARE2) --on voc --split $$split --methods $(METHODS2) $(VOC2) || exit 1; done
	@$(BIN)/segue compare voc256-2-form.yaml --on voc --split 15-1 --methods $(FORM2) --seeds 3 \
		--out results/voc256-2/form scenario.hold_out=0.2 $(VOC2)
	@$(BIN)/segue compare voc256-2-form.yaml --on voc --split 15-1 --methods $(ONCE2) \
		--out results/voc256-2/form scenario.hold_out=0.2 $(VOC2)
	@for seeds in 1 3; do $(COMPARE2) --on voc --split 10-1 --methods $(BEST2) --seeds $$seeds $(VOC2) && \
		$(COMPARE2) --on folder --split 6-1 --methods $(BEST2) --seeds $$seeds $(ADE2) || exit 1; done
	@for split in 15-1 15-5; do $(COMPARE2) --on voc --split $$split --methods $(METHODS2) --seeds 3 $(VOC2) || exit 1; done
	@$(BIN)/segue reproduce table1 table3 table5 table6 table7 --scale voc256-2 --out results/voc256-2/paper
	@$(BIN)/segue tune voc256-2.yaml --on voc --split 15-5 --by hIoU --out results/voc256-2/tuning \
		--used results/voc256-2/tuning/voc-15-1-overlapped/choice-hiou.yaml $(VOC2)
	@$(BIN)/segue compare voc256-2-fusion.yaml --on voc --split 15-5 --methods plain,fusion,distilled,both \
		--out results/voc256-2/fusion $(VOC2)

bench: $(STAMP)
	@$(BIN)/python -m benchmarks losses --save results/bench-losses.json
	@$(BIN)/python -m benchmarks step --save results/bench-step.json
	@$(BIN)/python -m benchmarks caf --save results/bench-caf.json
	@$(BIN)/python -m benchmarks plan --save results/bench-plan.json
	@$(BIN)/python -m benchmarks data --images 20210 --save results/bench-data.json
	@$(BIN)/python -m benchmarks export --save results/bench-export.json
	@$(BIN)/python -m benchmarks serve --seconds 300 --save results/bench-serve.json
	@$(BIN)/python -m benchmarks page --save docs/performance.md

$(STAMP_DOCS): $(STAMP)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable ".[docs]"
	@touch $(STAMP_DOCS)

docs: $(STAMP_DOCS)
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "Site: site/index.html"

lint: $(STAMP)
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(STAMP)
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

clean:
	rm -rf $(VENV) $(LOWEST) demo .pytest_cache .ruff_cache .mypy_cache site
