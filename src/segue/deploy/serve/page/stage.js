// Answers of the models as arrays, and pictures of them. No document here.

async function inflated(text) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
  return new Response(stream).arrayBuffer();
}

// What `answer=view` gives, with ids and confidence unpacked and classes by index.
export async function unpacked(answer, models) {
  const found = await Promise.all(
    answer.models.map(async (own, place) => {
      const ids = await inflated(own.ids);
      return {
        name: own.name,
        areas: own.areas,
        classes: models[place].classes.map((one) => one.name),
        ids: own.bytes === 2 ? new Uint16Array(ids) : new Uint8Array(ids),
        confidence: new Uint8Array(await inflated(own.confidence)),
        step: own.step,
      };
    }),
  );
  return { ...answer, models: found };
}

// One colour per class name, whichever model it belongs to: that of the first model to have it, unless taken.
export function coloursByName(models) {
  const colours = new Map();
  for (const model of models) {
    for (const { name, colour } of model.classes) {
      if (colours.has(name)) continue;
      const taken = new Set(models.length > 1 && model !== models[0] ? colours.values() : []);
      colours.set(name, taken.has(colour) ? anotherColour(taken) : colour);
    }
  }
  return colours;
}

function anotherColour(taken) {
  for (let turn = 0; ; turn += 1) {
    const colour = colourOfHue((turn * 137.5) % 360, 0.5 + 0.3 * ((turn % 3) / 2));
    if (!taken.has(colour)) return colour;
  }
}

function colourOfHue(hue, light) {
  const part = (shift) => {
    const place = (shift + hue / 30) % 12;
    return light - 0.9 * Math.min(light, 1 - light) * Math.max(-1, Math.min(place - 3, 9 - place, 1));
  };
  return `#${[0, 8, 4].map((shift) => Math.round(255 * part(shift)).toString(16).padStart(2, "0")).join("")}`;
}

function pixelOf(colour) {
  const value = parseInt(colour.slice(1), 16);
  return (255 << 24) | ((value & 255) << 16) | (value & 0xff00) | (value >> 16);
}

// Colour of every index of a model as one 32-bit pixel; 0, which is transparent, for hidden classes.
function table(model, colours, hidden) {
  return Uint32Array.from(model.classes, (name) => (hidden.has(name) ? 0 : pixelOf(colours.get(name))));
}

export function overlay(view, model, colours, hidden) {
  const picture = new ImageData(view.width, view.height);
  const pixels = new Uint32Array(picture.data.buffer);
  const of = table(model, colours, hidden);
  for (let place = 0; place < pixels.length; place += 1) pixels[place] = of[model.ids[place]];
  return picture;
}

// For every index of the first model the index of that name in the second, or -1.
function sameName(old, grown) {
  return Int32Array.from(old.classes, (name) => grown.classes.indexOf(name));
}

export function difference(view, [old, grown], colours, hidden) {
  const picture = new ImageData(view.width, view.height);
  const pixels = new Uint32Array(picture.data.buffer);
  const same = sameName(old, grown);
  const visible = new Set(hidden);
  visible.delete(grown.classes[0]); // what became background is a change, too
  const of = table(grown, colours, visible);
  for (let place = 0; place < pixels.length; place += 1) {
    if (same[old.ids[place]] !== grown.ids[place]) pixels[place] = of[grown.ids[place]];
  }
  return picture;
}

const LEAST_CHANGE = 0.0005; // share of pixels below which a change is not listed

// Share of pixels whose class has changed, and the commonest changes.
export function changes([old, grown]) {
  const same = sameName(old, grown);
  const counts = new Map();
  let changed = 0;
  for (let place = 0; place < old.ids.length; place += 1) {
    if (same[old.ids[place]] === grown.ids[place]) continue;
    changed += 1;
    const key = old.ids[place] * 65536 + grown.ids[place];
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  const common = [...counts].sort((one, other) => other[1] - one[1]).slice(0, 5)
    .filter(([, count]) => count >= LEAST_CHANGE * old.ids.length);
  return {
    share: changed / old.ids.length,
    common: common.map(([key, count]) => ({
      from: old.classes[Math.floor(key / 65536)],
      to: grown.classes[key % 65536],
      share: count / old.ids.length,
    })),
  };
}

// Class and confidence of a model at a pixel.
export function at(view, model, x, y) {
  const columns = Math.ceil(view.width / model.step);
  const sure = model.confidence[Math.floor(y / model.step) * columns + Math.floor(x / model.step)];
  return { name: model.classes[model.ids[y * view.width + x]], confidence: sure / 255 };
}
