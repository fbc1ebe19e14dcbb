// The API as /openapi.json describes it.
const made = (tag, name, text) => {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  return element;
};

function rows(pairs) {
  const table = made("table");
  for (const [left, right] of pairs) {
    const row = made("tr");
    const first = made("td");
    first.append(made("code", "", left));
    row.append(first, made("td", "", right));
    table.append(row);
  }
  return table;
}

function route(path, verb, about) {
  const section = made("section", "card");
  const title = made("h2");
  title.append(made("span", "verb", verb.toUpperCase()), made("code", "", ` ${path}`));
  section.append(title, made("p", "", about.summary ?? ""));
  const parameters = (about.parameters ?? []).filter((one) => one.in === "query" || one.in === "path");
  if (parameters.length) section.append(made("h3", "", "Parameters"), rows(parameters.map((one) => [one.name, one.description ?? ""])));
  const body = Object.keys(about.requestBody?.content ?? {});
  if (body.length) section.append(made("h3", "", "Body"), rows(body.map((kind) => [kind, kind.startsWith("multipart") ? "the image as field 'file'" : "the image itself"])));
  const answers = Object.entries(about.responses ?? {});
  if (answers.length > 1) section.append(made("h3", "", "Answers"), rows(answers.map(([status, one]) => [status, one.description ?? ""])));
  return section;
}

const about = await (await fetch("openapi.json")).json();
document.getElementById("version").textContent = about.info.version;
document.getElementById("about").textContent = about.info.description;
for (const [path, verbs] of Object.entries(about.paths)) {
  for (const [verb, one] of Object.entries(verbs)) document.getElementById("routes").append(route(path, verb, one));
}
const here = location.origin;
document.getElementById("curl").textContent = [
  `curl -F file=@photo.jpg ${here}/predict -o mask.png`,
  `curl -F file=@photo.jpg '${here}/predict?answer=areas'`,
  `curl --data-binary @photo.jpg -H 'Content-Type: image/jpeg' '${here}/predict?answer=both'`,
  `curl -H 'Authorization: Bearer TOKEN' ${here}/classes   # if the server has a token`,
].join("\n");
