// The page: takes an image, asks the server, shows what the models say of it.
import { at, changes, coloursByName, difference, overlay, unpacked } from "./stage.js";

const find = (id) => document.getElementById(id);
const percent = (share) => `${(100 * share).toFixed(share > 0 && share < 0.0995 ? 1 : 0)}\u00a0%`;
const made = (tag, name, text) => {
  const element = document.createElement(tag);
  if (name) element.className = name;
  if (text !== undefined) element.textContent = text;
  return element;
};

let about = null; // classes and limits
let colours = new Map();
let shown = null; // the answer on the stage
let panes = [];
let pictures = []; // an overlay per model
let asking = null; // aborts the request under way
const hidden = new Set();

// --- asking the server

function headers() {
  const token = sessionStorage.getItem("segue-token");
  return token ? { Authorization: `Bearer ${token}` } : {};
}

async function ask(path, options = {}) {
  const answer = await fetch(path, { ...options, headers: headers() });
  if (answer.ok) return answer;
  if (answer.status === 401) find("locked").hidden = false;
  const said = await answer.json().catch(() => ({}));
  throw new Error(said.error ?? `The server answered with status ${answer.status}.`);
}

async function start() {
  try {
    about = await (await ask("classes")).json();
  } catch (error) {
    fail(error.message);
    return;
  }
  find("locked").hidden = true;
  find("error").hidden = true;
  find("models").textContent = about.models.map((one) => `${one.name} · ${one.classes.length - 1} classes`).join("  |  ");
  find("limits").textContent = `Up to ${Math.round(about.limits.bytes / 2 ** 20)} MiB and ${Math.round(about.limits.pixels / 1e6)} million pixels. The image stays on this server.`;
  find("views").hidden = about.models.length < 2;
  colours = coloursByName(about.models);
  hidden.add(about.models[0].classes[0].name);
  showGallery().catch(() => {});
}

async function predict(file) {
  await ready; // an image may be there before the classes are
  if (!about) return;
  asking?.abort();
  asking = new AbortController();
  const { signal } = asking;
  find("error").hidden = true;
  if (file.size > about.limits.bytes) {
    fail(`The file has ${(file.size / 2 ** 20).toFixed(1)} MiB; ${Math.round(about.limits.bytes / 2 ** 20)} are accepted.`);
    return;
  }
  find("state").textContent = "Working …";
  const form = new FormData();
  form.append("file", file, "image");
  const began = performance.now();
  try {
    const answer = await (await ask("predict?answer=view", { method: "POST", body: form, signal })).json();
    const view = await unpacked(answer, about.models);
    if (signal.aborted) return;
    show(view);
    const seconds = ((performance.now() - began) / 1000).toFixed(2);
    find("state").textContent = `${view.image.width} x ${view.image.height} pixels, answered in ${seconds} s.`;
  } catch (error) {
    if (!signal.aborted) fail(error instanceof TypeError ? "The server cannot be reached." : error.message);
  }
}

function fail(sentence) {
  find("state").textContent = "";
  find("error").textContent = sentence;
  find("error").hidden = false;
}

// --- the stage

function show(view) {
  shown = view;
  find("result").hidden = false;
  document.body.classList.add("shown");
  showLegend();
  if (view.models.length > 1) showChanges();
  arrange();
}

const mode = () => (shown.models.length < 2 ? "one" : document.querySelector("input[name=view]:checked").value);

function arrange() {
  if (!shown) return;
  const now = mode();
  const titles = now === "side" ? shown.models.map((one) => one.name) : [""];
  find("panes").className = now;
  find("swipe-row").hidden = now !== "swipe";
  find("changes").hidden = now === "one";
  panes = titles.map((title, place) => pane(title, now, now === "side" ? [shown.models[place]] : shown.models));
  find("panes").replaceChildren(...panes.map((one) => one.figure));
  paint();
}

function pane(title, now, models) {
  const figure = made("figure");
  const box = made("div", `pane ${now}${shown.width < 400 ? " small" : ""}`);
  const ratio = shown.width / shown.height;
  box.style.aspectRatio = String(ratio);
  box.style.width = `min(100%, calc(72vh * ${ratio}))`;
  box.tabIndex = 0;
  box.setAttribute("role", "application");
  box.setAttribute("aria-label", "Image with classes. Arrow keys move the point that is described.");
  const photo = made("img");
  photo.src = `data:image/jpeg;base64,${shown.photo}`;
  photo.alt = "";
  const canvas = made("canvas");
  canvas.width = shown.width;
  canvas.height = shown.height;
  const marker = made("div", "marker");
  const tip = made("div", "tip");
  marker.hidden = tip.hidden = true;
  box.append(photo, canvas, marker, tip);
  const own = { figure, box, canvas, marker, tip, models, point: null };
  if (now === "swipe") {
    own.divider = made("div", "divider");
    box.append(own.divider, made("div", "corner left", models[0].name), made("div", "corner right", models[1].name));
  }
  figure.append(box);
  if (title) figure.append(made("figcaption", "", title));
  listen(own, now);
  return own;
}

function paint() {
  pictures = shown.models.map((model) => overlay(shown, model, colours, hidden));
  draw();
}

function draw() {
  const now = mode();
  panes.forEach((own, place) => {
    const context = own.canvas.getContext("2d");
    own.canvas.style.opacity = String(find("opacity").value / 100);
    if (now === "difference") context.putImageData(difference(shown, shown.models, colours, hidden), 0, 0);
    else if (now === "swipe") drawSwipe(own, context);
    else context.putImageData(pictures[place], 0, 0);
  });
}

function drawSwipe(own, context) {
  const share = find("swipe").value / 100;
  const edge = Math.round(share * shown.width);
  context.clearRect(0, 0, shown.width, shown.height);
  if (edge > 0) context.putImageData(pictures[0], 0, 0, 0, 0, edge, shown.height);
  if (edge < shown.width) context.putImageData(pictures[1], 0, 0, edge, 0, shown.width - edge, shown.height);
  own.divider.style.left = `${100 * share}%`;
  find("swipe-value").textContent = `${find("swipe").value} %`;
}

function listen(own, now) {
  const place = (event) => {
    const box = own.box.getBoundingClientRect();
    return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
  };
  own.box.addEventListener("pointerdown", (event) => {
    describe(own, ...place(event), event.pointerType !== "touch");
  });
  own.box.addEventListener("pointermove", (event) => {
    const [x, y] = place(event);
    if (now === "swipe" && event.buttons) {
      find("swipe").value = String(Math.round(100 * Math.min(1, Math.max(0, x))));
      draw();
    }
    if (!event.buttons || now !== "swipe") describe(own, x, y, true);
  });
  own.box.addEventListener("pointerleave", () => { own.tip.hidden = own.marker.hidden = true; });
  own.box.addEventListener("blur", () => { own.tip.hidden = own.marker.hidden = true; });
  own.box.addEventListener("keydown", (event) => {
    const [across, down] = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] }[event.key] ?? [];
    if (across === undefined) return;
    event.preventDefault();
    const step = event.shiftKey ? 0.005 : 0.02;
    const [x, y] = own.point ?? [0.5, 0.5];
    describe(own, x + step * across, y + step * down, true);
    own.marker.hidden = false;
  });
}

function describe(own, x, y, tip) {
  const inside = (value) => Math.min(0.9999, Math.max(0, value));
  own.point = [inside(x), inside(y)];
  const [column, row] = [Math.floor(own.point[0] * shown.width), Math.floor(own.point[1] * shown.height)];
  const lines = own.models.map((model) => {
    const found = at(shown, model, column, row);
    return `${own.models.length > 1 ? `${model.name}: ` : ""}${found.name}, ${percent(found.confidence)} sure`;
  });
  find("readout").textContent = lines.join("\n");
  own.tip.textContent = lines.join("\n");
  own.tip.hidden = !tip;
  own.marker.style.left = `${100 * own.point[0]}%`;
  own.marker.style.top = `${100 * own.point[1]}%`;
  own.marker.hidden = tip;
  const right = own.point[0] > 0.5;
  const low = own.point[1] > 0.8;
  Object.assign(own.tip.style, {
    left: right ? "auto" : `calc(${100 * own.point[0]}% + 12px)`,
    right: right ? `calc(${100 * (1 - own.point[0])}% + 12px)` : "auto",
    top: low ? "auto" : `calc(${100 * own.point[1]}% + 12px)`,
    bottom: low ? `calc(${100 * (1 - own.point[1])}% + 12px)` : "auto",
  });
}

// --- legend, changes, gallery

function showLegend() {
  const names = [...colours.keys()].filter((name) => shown.models.some((model) => model.areas[name]));
  find("classes").replaceChildren(...names.map((name) => {
    const item = made("li");
    const label = made("label");
    const box = made("input");
    box.type = "checkbox";
    box.checked = !hidden.has(name);
    box.addEventListener("change", () => {
      if (box.checked) hidden.delete(name);
      else hidden.add(name);
      paint();
    });
    const swatch = made("span", "swatch");
    swatch.style.background = colours.get(name);
    const shares = shown.models.map((model) => (model.classes.includes(name) ? percent(model.areas[name]?.share ?? 0) : "–"));
    label.append(box, swatch, made("span", "name", name), made("span", "share", shares.join(" → ")));
    item.append(label);
    return item;
  }));
}

function setAll(visible) {
  for (const name of colours.keys()) {
    if (visible) hidden.delete(name);
    else hidden.add(name);
  }
  showLegend();
  paint();
}

function showChanges() {
  const found = changes(shown.models);
  const list = made("ul");
  list.append(...found.common.map((one) => made("li", "", `${one.from} → ${one.to}: ${percent(one.share)}`)));
  find("changes").replaceChildren(made("p", "", `${percent(found.share)} of the pixels differ.`), list);
}

async function showGallery() {
  const found = await (await ask("gallery")).json();
  const figures = await Promise.all(found.map(async (one) => {
    const figure = made("figure");
    const picture = made("img");
    picture.alt = one.title;
    picture.src = URL.createObjectURL(await (await ask(one.url.slice(1))).blob());
    figure.append(picture, made("figcaption", "", about.models.length > 1 ? `${one.model}: ${one.title}` : one.title));
    return figure;
  }));
  find("pictures").replaceChildren(...figures);
  find("gallery").hidden = figures.length === 0;
}

// --- what people do

const files = (list) => [...(list ?? [])].slice(0, 1).forEach(predict);
find("file").addEventListener("change", (event) => { files(event.target.files); event.target.value = ""; });
document.addEventListener("paste", (event) => files(event.clipboardData?.files));
document.addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("over"); });
document.addEventListener("dragleave", () => document.body.classList.remove("over"));
document.addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("over");
  files(event.dataTransfer?.files);
});
find("opacity").addEventListener("input", () => { find("opacity-value").textContent = `${find("opacity").value} %`; draw(); });
find("swipe").addEventListener("input", draw);
for (const one of document.querySelectorAll("input[name=view]")) one.addEventListener("change", arrange);
find("all").addEventListener("click", () => setAll(true));
find("none").addEventListener("click", () => setAll(false));
const unlock = () => { sessionStorage.setItem("segue-token", find("token").value); ready = start(); };
find("unlock").addEventListener("click", unlock);
find("token").addEventListener("keydown", (event) => { if (event.key === "Enter") unlock(); });
let ready = start();
