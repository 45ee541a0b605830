"use strict";
const $ = (id) => document.getElementById(id);
const make = (tag, attributes = {}, ...children) => {
  const svg = ["svg", "g", "path", "text", "circle", "line"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);  // strings become text, never markup
  return node;
};
const reducedMotion = matchMedia("(prefers-reduced-motion: reduce)");
const EXAMPLES = [
  ["A phrase, as long as it needs to be", "We were so ___ wedding."],
  ["A whole sentence between two others", "The bus broke down in the middle of nowhere. ___ We got home at midnight."],
  ["Bounds, in words", "The police are looking for ___{3,8} near the station."],
  ["Several blanks at once", "I ordered ___ and ___, but the waiter ___{2,6}."],
  ["Only words, in this order", "doctor hospital nurse patient", {free: true}],
  ["Words that start on a grid and move to their places", "He was born in ___ and moved to ___ in 1998.", {terminal: "grid"}],
];
const OPTIONS = ["n", "steps", "temperature", "seed", "terminal"];

/* ---- fills and locks ---- */
// A result's `parts` are literals (strings) and blanks {bounds, words: [{before, text, after, locked}]}. `shape` says how to build them from a reply.
let shape = null, results = [], selected = 0, runs = new Map(), template = null, controller = null, sent = null, editing = false, picked = false;

const escaped = (text) => text.replace(/(?<!\\)(\\*)(_{3,}|<mask>|\[MASK\]|\[blank\]|<extra_id_[0-9]+>)/g, (all, slashes) => "\\".repeat(slashes.length + 1) + all);
function write(literals, blanks) {  // the template that parses to exactly these literals and blanks
  let text = escaped(literals.at(-1));
  for (let i = blanks.length - 1; i >= 0; i--) {
    const {least, most} = blanks[i], literal = literals[i];
    const bounds = least !== 1 || most !== null || /^(_|\{|\\\{)/.test(text) ? `{${least},${most ?? ""}}` : "";
    text = escaped(literal) + literal.match(/\\*$/)[0] + (literal.endsWith("_") ? "[blank]" : "___") + bounds + text;
  }
  return text;
}
const wordsOf = (fill, locked) => (fill.match(/\s*\S+\s*$|\s*\S+/g) ?? []).map((all) => {
  const text = all.trim(); const at = all.indexOf(text);
  return {before: all.slice(0, at), text, after: all.slice(at + text.length), locked};
});
const spelled = (words) => words.map((word) => word.before + word.text + word.after).join("");
const plain = (reply) => ({free: shape?.free ?? false, literals: reply.literals, blanks: reply.blanks.map((bounds, i) => ({bounds, items: [{open: i}]}))});
function partsOf(result) {
  return shape.blanks.flatMap((blank, i) => {
    const words = [];
    for (const item of blank.items) {
      const more = "open" in item ? wordsOf(result.fills[item.open], item.locked ?? false) : item.kept.map((word) => ({...word}));
      if (item.gap && more.length) more[0].before = item.gap + more[0].before;
      else if (item.gap) words.at(-1).after += item.gap;
      words.push(...more);
    }
    return [shape.literals[i], {bounds: blank.bounds, words}];
  }).concat(shape.literals.at(-1));
}
function lockedRequest() {  // the request that keeps locked words: {text, fills, shape}; null if nothing is left to fill
  const parts = results[selected].parts, literals = [""], blanks = [], fills = [], next = {free: shape.free, literals: shape.literals, blanks: []};
  let left = 0;
  const open = (bounds, fill) => { blanks.push(bounds); fills.push(fill); literals.push(""); left += fill === null; return blanks.length - 1; };
  for (const part of parts) {
    if (typeof part === "string") { literals[literals.length - 1] += part; continue; }
    const count = part.words.filter((word) => word.locked).length, items = [];
    if (count === part.words.length && count) items.push({open: open(part.bounds, spelled(part.words)), locked: true});
    else if (!count) items.push({open: open(part.bounds, null)});
    else {
      const bounded = part.bounds.least > 1 || part.bounds.most !== null;  // then each run of words keeps its length
      for (let i = 0; i < part.words.length;) {
        const word = part.words[i]; let end = i;
        while (end < part.words.length && part.words[end].locked === word.locked) end++;
        const run = part.words.slice(i, end);
        if (word.locked) { literals[literals.length - 1] += spelled(run); items.push({kept: run}); }
        else {
          const first = run[0].before, last = run.at(-1).after, k = run.length;
          literals[literals.length - 1] += i ? first : "";
          items.push({open: open(bounded ? {least: k, most: k} : {least: 0, most: null}, null), gap: i ? first : ""});
        }
        i = end;
      }
    }
    next.blanks.push({bounds: part.bounds, items});
  }
  return left ? {text: write(literals, blanks), fills, shape: next} : null;
}

/* ---- requests ---- */
function fail(sentence) {
  $("error").textContent = sentence; $("error").hidden = false;
  $("found").hidden = $("watch").hidden = true; $("start").hidden = false;
  results = []; runs = new Map(); frames = [];
}
const inPageWords = (sentence) => sentence.replace(/^n\b/, "Fills").replace(/or, to infill, give "free" .*/, "or tick “only words in order” in the options");
function formError() {  // what is wrong with the form, in the words of the page
  const text = $("text").value;
  if (!text.trim()) return "The text is empty; write a sentence with ___ where words are missing.";
  for (const id of ["n", "steps", "temperature", "seed"]) {
    const box = $(id), name = box.parentNode.textContent.trim(), {min, max, step} = box;
    const range = max ? ` from ${min} to ${max}` : "";
    if (!box.validity.valid || box.value === "") { $("more").open = true; box.focus(); return `${name} must be a ${step === "1" ? "whole " : ""}number${range}.`; }
  }
  return "";
}
const settings = () => ({n: Number($("n").value), steps: Number($("steps").value), seed: Number($("seed").value) + refills, temperature: Number($("temperature").value), terminal: $("terminal").value || null});
async function ask(body, nextShape, pick) {  // `pick`: which fill to show once all have arrived
  controller?.abort();
  const current = controller = new AbortController();
  $("error").hidden = true; $("stop").hidden = false; $("go").disabled = $("again").disabled = true;
  document.body.setAttribute("aria-busy", "true");
  sent = {...settings(), ...body};
  const received = new Map(); let begun = false;
  const beginOnce = () => { if (!begun) { begun = true; begin(); runs = received; } };
  try {
    const headers = {"Content-Type": "application/json"};
    if ($("key").value) headers.Authorization = "Bearer " + $("key").value;
    const reply = await fetch("v1/infill", {method: "POST", headers, body: JSON.stringify({...sent, stream: true}), signal: current.signal});
    if (!reply.ok) {
      const failure = await reply.json().catch(() => null);
      if (reply.status === 401) { $("more").open = true; $("key").focus(); }
      return fail(inPageWords(failure?.error?.message ?? `The server answered with status ${reply.status}.`));
    }
    for await (const event of events(reply.body)) {
      if (event.error) return fail(inPageWords(event.error.message));
      beginOnce();
      if (event.type === "queued") $("status").textContent = event.ahead ? `waiting; ${event.ahead} ahead of you` : "waiting; you are next";
      else if (event.type === "start") template = event;
      else if (event.type === "frame") {
        const windows = received.get(event.attempt) ?? [];
        received.set(event.attempt, windows);
        if (event.step === 0) windows[event.window] = {frames: [], first: event.first_blank, slots: event.slots};  // replaced if the window is filled again
        windows[event.window].frames.push(event);
        if (!results.length) {
          $("status").textContent = `step ${event.step} of ${event.steps}`;
          if (event.attempt === 0) { follow(windows, event.window); $("sentence").replaceChildren(...reading(windows, event.window, event.step)); }
        }
      } else {
        const first = event.type === "first", chosen = results[selected];
        shape = nextShape ?? {...plain(event), free: !!body.free};
        if (body.fills && !nextShape) shape.blanks.forEach((blank, i) => { blank.items[0].locked = body.fills[i] !== null; });
        const before = results;
        results = event.results.map((result) => before.find((old) => old.text === result.text) ?? {...result, original: result.text, parts: partsOf(result)});
        $("status").textContent = first ? `the first of ${sent.n}; the others follow` : `${results.length} ${results.length === 1 ? "fill" : "different fills"} in ${event.seconds.toFixed(1)} s`;
        if (chosen && results.includes(chosen) && (picked || pick === undefined)) { selected = results.indexOf(chosen); showList(); }
        else choose(first ? 0 : Math.min(pick ?? 0, results.length - 1), false);
      }
    }
  } catch (error) {
    if (error.name === "AbortError") $("status").textContent = "stopped";
    else fail("The server cannot be reached; is ddot serve still running?");
  } finally {
    if (controller === current) { controller = null; $("stop").hidden = true; $("go").disabled = $("again").disabled = false; document.body.removeAttribute("aria-busy"); }
  }
}
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader(); let rest = "";
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n"); rest = blocks.pop();
    for (const block of blocks) if (block.startsWith("data: ")) yield JSON.parse(block.slice(6));
  }
}
let filled = "", refills = 0;  // the text that was filled; how often it was filled again, each time with the next seed
function fill() {
  const wrong = formError();
  if (wrong) return fail(wrong);
  const text = filled = $("text").value; refills = 0;
  if (/_{3,}/.test(text)) $("free").checked = false;  // left over from another text: a free text has no blanks
  ask($("free").checked ? {free: text} : {text}, null);
}
function fillAgain() {
  const wrong = formError();
  if (wrong) return fail(wrong);
  if ($("text").value !== filled) return fill();
  const blanks = results[selected].parts.filter((part) => typeof part !== "string");
  const fills = blanks.map((part) => part.words.some((word) => word.locked) ? spelled(part.words) : null);
  const asked = shape.free ? {fills, shape: {...shape, blanks: shape.blanks.map((blank, i) => ({...blank, items: [{open: i, locked: fills[i] !== null}]}))}} : lockedRequest();
  if (!asked || (shape.free && !fills.includes(null))) { $("locks").textContent = "Every word is locked; unlock one to fill again."; return; }
  refills += 1;
  ask(shape.free ? {free: filled, fills} : {text: asked.text, fills: asked.fills}, asked.shape);
}

/* ---- the whole text while it is filled, in reading order ---- */
function reading(windows, number, step) {
  const part = windows[number], out = [], put = (kind, text) => { if (text) out.push(make("span", {class: kind}, text)); };
  const done = number === windows.length - 1 && step === part.frames.length - 1 && results.find((result) => runs.get(result.attempt) === windows);
  if (done) {  // with its final spaces
    const ends = done.spans.flatMap(([start, end], i) => template.locked[i] === null ? [start, end] : []);
    [0, ...ends].forEach((from, k) => put(k % 2 ? "filled" : "given", done.original.slice(from, [...ends, done.original.length][k])));
    return out;
  }
  if (!part.slots) {  // free text: in the order of current positions
    const frame = part.frames[step], order = frame.positions.map((_, s) => s).sort((a, b) => frame.positions[a] - frame.positions[b] || a - b);
    for (const s of order) put(frame.kinds[s] === "prompt" ? "given" : frame.tokens[s] === null ? "masked" : "filled", frame.tokens[s] ?? " ░");
    return out;
  }
  template.literals.forEach((literal, i) => {
    put("given", literal);
    if (i === template.literals.length - 1) return;
    const source = windows.findLast((window, k) => k <= number && window.first <= i && i < window.first + window.slots.length);
    if (!source) return put("masked", "___");
    const frame = source.frames[source === part ? step : source.frames.length - 1];
    source.slots[i - source.first].forEach((slot, k) => {
      const token = frame.tokens[slot] ?? " ░", bare = k === 0 && (!literal || /\s$/.test(literal)) ? token.trimStart() : token;
      put(frame.tokens[slot] === null ? "masked" : "filled", bare);
    });
    if (/^[\p{L}\p{N}]/u.test(template.literals[i + 1])) out.push(" ");
  });
  return out;
}

/* ---- showing fills ---- */
function begin() {
  $("found").hidden = $("watch").hidden = false; $("start").hidden = true;
  results = []; selected = 0; frames = []; picked = false;
  $("fills").replaceChildren(); $("again-row").hidden = true; $("sentence").replaceChildren(); $("sentence").classList.add("live");
}
function choose(index, settle = true) {  // without `settle`, a running animation continues
  selected = index; $("again-row").hidden = false;
  showSentence(); showList();
  const run = runs.get(results[index].attempt);
  $("watch").hidden = !run;
  if (run && (settle || windows !== run)) show(run, run.length - 1);
}
const CLOSED = "M8 11V8a4 4 0 0 1 8 0v3M6 11h12v9H6z", OPEN = "M8 11V8a4 4 0 0 1 7.6-1.8M6 11h12v9H6z";
function showSentence() {
  const nodes = []; let number = 0;
  $("sentence").classList.remove("live");
  for (const part of results[selected].parts) {
    if (typeof part === "string") { nodes.push(part); continue; }
    const fillNumber = ++number;
    if (!part.words.length) { if (!shape.free) nodes.push(make("span", {class: "empty", title: "left empty"}, "∅")); continue; }
    const toggle = (words, to, at) => { (shape.free ? part.words : words).forEach((word) => { word.locked = to; }); showSentence(); $("sentence").querySelector(`[data-at="${at}"]`)?.focus(); };
    part.words.forEach((word, i) => {
      const at = `${fillNumber}.${i}`;
      if (editing) {
        const box = make("input", {class: "word", value: word.text, "aria-label": `Word ${i + 1} of fill ${fillNumber}`, "data-at": at});
        box.style.width = `${word.text.length + 2}ch`;
        box.onchange = () => change(part, i, box.value);
        nodes.push(word.before, box, word.after);
      } else {
        const button = make("button", {class: "word", type: "button", "aria-pressed": word.locked, title: word.locked ? "Unlock this word" : "Lock this word", "data-at": at}, word.text);
        button.onclick = () => toggle([word], !word.locked, at);
        nodes.push(word.before, button, word.after);
      }
    });
    const allLocked = part.words.every((word) => word.locked), at = `${fillNumber}.all`;
    const icon = make("svg", {viewBox: "0 0 24 24", "aria-hidden": "true"}, make("path", {d: allLocked ? CLOSED : OPEN}));
    const button = make("button", {class: "whole", type: "button", "aria-pressed": allLocked, "aria-label": `Lock fill ${fillNumber}`, title: allLocked ? "Unlock this fill" : "Lock this whole fill", "data-at": at}, icon);
    button.onclick = () => toggle(part.words, !allLocked, at);
    const tail = nodes.pop(); nodes.push(button, tail);
  }
  $("sentence").replaceChildren(...nodes);
  const count = results[selected].parts.flatMap((part) => part.words ?? []).filter((word) => word.locked).length;
  $("again").textContent = count ? "Fill the rest again" : "Fill again";
  $("locks").textContent = count ? `${count} ${count === 1 ? "word is" : "words are"} locked and will stay.` : "Click words to lock them; the rest is filled again.";
}
function change(part, i, value) {  // an edited word is locked
  const [old] = part.words.splice(i, 1), words = value.trim().split(/\s+/).filter(Boolean);
  part.words.splice(i, 0, ...words.map((text, k) => ({before: k ? " " : old.before, text, after: k === words.length - 1 ? old.after : "", locked: true})));
  const result = results[selected];
  result.text = textOf(result); result.edited = true;
  showSentence(); showList();
}
const textOf = (result) => result.parts.map((part) => typeof part === "string" ? part : spelled(part.words)).join("");
function showList() {
  $("fills").replaceChildren(...results.map((result, index) => {
    const what = make("span", {class: "what"}, ...result.parts.map((part) => typeof part === "string" ? part : make("b", {}, spelled(part.words))));
    const bar = make("span", {class: "bar"}, make("i")); bar.firstChild.style.width = `${Math.round(100 * Math.exp(Math.min(0, result.score - results[0].score) / 3))}%`;
    const score = result.edited ? make("span", {class: "score"}, "edited") : make("span", {class: "score"}, result.score.toFixed(2).replace("-", "−"), bar);
    const button = make("button", {type: "button", "aria-pressed": index === selected}, what, score);
    button.onclick = () => { picked = true; choose(index); $("fills").children[index].firstChild.focus(); };
    return make("li", {}, button);
  }));
}
async function copy(text, button) {
  const label = button.textContent;
  try { await navigator.clipboard.writeText(text); } catch {
    const box = make("textarea", {"aria-hidden": "true"}); box.value = text; document.body.append(box); box.select(); document.execCommand("copy"); box.remove(); button.focus();
  }
  button.textContent = "Copied"; setTimeout(() => { button.textContent = label; }, 1500);
}

/* ---- drawing paths: time runs to the right, position downwards ---- */
let frames = [], windows = [], part = 0, slots = [], at = 0, goal = 0, ticking = false, before = 0;
const ROW = 23, GAP = 17, CLOSE = 13, LEAST = 10, TOP = 14, BOTTOM = 30;  // pixels: height of a word; between labels (if there is room, while moving, at least); margins
function follow(run, number) { if (windows !== run || part !== number || frames !== run[number].frames) { setUp(run, number); at = 0; } goal = frames.length - 1; if (reducedMotion.matches) at = goal; tick(); }
function show(run, number) { setUp(run, number); at = goal = frames.length - 1; draw(true); }
function setUp(run, number) {
  windows = run; part = number; frames = run[number].frames;
  $("watch-head").textContent = sent.terminal || shape?.free ? "How the words moved" : "How the words came";
  $("part-label").hidden = run.length < 2;
  $("part").replaceChildren(...run.map((_, k) => make("option", {value: k}, `${k + 1} of ${run.length}`))); $("part").value = number;
  const first = frames[0], stage = $("stage");
  slots = first.tokens.map((token, i) => {
    const group = make("g"), lines = ["ghost", "hid", "known"].map((name) => make("path", {class: name}));
    const dot = make("circle", {r: 2.6}), label = make("text");
    const edge = first.kinds[i] === "prompt" && token === "";
    group.append(...lines, ...(edge ? [] : [dot, label]));
    return {group, lines, dot, label, edge, y: null};
  });
  stage.replaceChildren(make("text", {class: "axis", id: "from"}, "noise"), make("text", {class: "axis", id: "to"}, "text"), ...slots.map((slot) => slot.group), make("line", {id: "front"}));
}
function ascending(values) {  // isotonic regression: the nearest numbers that never decrease
  const blocks = [];
  for (let mean of values) {
    let count = 1;
    while (blocks.length && blocks.at(-1)[0] > mean) { const [other, more] = blocks.pop(); mean = (mean * count + other * more) / (count + more); count += more; }
    blocks.push([mean, count]);
  }
  return blocks.flatMap(([mean, count]) => Array(count).fill(mean));
}
function heights(places, filled, tall) {  // {of: the words' final heights, at: the height of a place between the first (0) and the last (1), apart, close: between labels at the end, and while moving}
  // At the end words are evenly spaced. If there is no room for all labels, the given words are closer together.
  const order = places.map((_, s) => s).sort((a, b) => places[a] - places[b] || a - b), many = filled.filter(Boolean).length;
  const others = order.length - many, even = tall / order.length;
  const wide = even < LEAST ? Math.max(LEAST, Math.min(GAP, (tall - 4 * others) / many)) : even, narrow = Math.max(1, (tall - many * wide) / others);
  const room = order.map((s) => filled[s] ? wide : narrow), share = tall / room.reduce((a, b) => a + b, 0);
  let sum = 0;
  const drawn = room.map((height) => (sum += height * share) - height * share / 2), sorted = order.map((s) => places[s]);
  const at = (place) => {
    let low = 0, high = sorted.length - 1;
    while (high - low > 1) { const middle = low + high >> 1; if (sorted[middle] <= place) low = middle; else high = middle; }
    const gap = sorted[high] - sorted[low];
    return gap ? drawn[low] + Math.max(0, Math.min(1, (place - sorted[low]) / gap)) * (drawn[high] - drawn[low]) : drawn[low];
  };
  const of = []; order.forEach((s, k) => { of[s] = drawn[k]; });  // several may lie in one place
  return {of, at, apart: Math.max(LEAST, Math.min(GAP, wide * share)), close: Math.max(LEAST, Math.min(even < LEAST ? CLOSE : GAP, wide * share))};
}
function spread(labelled, gap, end) {  // the heights nearest to those of the words that are a gap apart
  const settled = ascending(labelled.map((slot, k) => slot.tip[1] - gap * k)), after = (k) => gap * (labelled.length - 1 - k);
  return settled.map((place, k) => Math.max(TOP + gap * k, Math.min(place + gap * k, end - after(k))));
}
function withLabels(words, apart) {  // words whose labels fit beside their final place, filled ones first
  const kept = [];
  for (const given of [false, true]) for (const word of words) {
    if (word.given === given && kept.every((other) => Math.abs(word.goal - other.goal) >= apart - .01)) kept.push(word);
  }
  return kept;
}
function draw(atOnce) {
  if (!frames.length) return false;
  const stage = $("stage"), width = stage.clientWidth || 600, steps = frames[0].steps || 1, last = frames.at(-1);
  const stays = slots.map((_, s) => last.kinds[s] !== "pad"), shown = slots.filter((slot, s) => !slot.edge && stays[s]).length;
  const height = Math.round(Math.min(Math.max(200, shown * ROW) + 34, Math.max(180, innerHeight * .62))), room = Math.min(130, width * .3);
  stage.setAttribute("viewBox", `0 0 ${width} ${height}`); stage.style.height = height + "px";
  // At every step the words use the full height: positions shrink towards the text, and labels would not fit.
  const ends = frames.map(({positions}) => { const staying = positions.filter((_, s) => stays[s]); return [Math.min(...staying), Math.max(...staying)]; });
  const place = (k, s) => (frames[k].positions[s] - ends[k][0]) / (ends[k][1] - ends[k][0] || 1), only = (_, s) => stays[s], end = height - BOTTOM;
  const drawn = heights(last.positions.map((_, s) => place(frames.length - 1, s)).filter(only), last.kinds.map((kind) => kind === "response").filter(only), end - TOP);
  const rank = []; stays.forEach((stay) => rank.push((rank.at(-1) ?? -1) + stay));
  const x = (step) => 6 + step / steps * (width - room - 12), y = (k, s) => TOP + (k === frames.length - 1 && stays[s] ? drawn.of[rank[s]] : drawn.at(place(k, s)));
  const i = Math.min(Math.floor(at), frames.length - 1), j = Math.min(i + 1, frames.length - 1), share = at - i;
  const step = share > .98 ? j : i, now = frames[step], here = x(i + (j - i) * share);
  slots.forEach((slot, s) => {
    const points = frames.map((_, k) => [x(k), y(k, s)]), tip = [here, points[i][1] * (1 - share) + points[j][1] * share];
    let known = frames.length;
    while (known > 0 && frames[known - 1].tokens[s] !== null) known--;
    const path = (corners) => corners.length > 1 ? "M" + corners.map(([a, b]) => `${a.toFixed(1)} ${b.toFixed(1)}`).join("L") : "";
    const past = points.slice(0, i + 1).concat([tip]);
    slot.lines[0].setAttribute("d", path([tip, ...points.slice(i + 1)]));
    slot.lines[1].setAttribute("d", path(known <= i ? past.slice(0, known + 1) : past));
    slot.lines[2].setAttribute("d", known <= i ? path(past.slice(known)) : "");
    const token = now.tokens[s], kind = now.kinds[s];
    slot.group.setAttribute("class", slot.edge ? "edge prompt" : kind === "prompt" ? "prompt" : token === null ? "open" : kind);
    slot.tip = tip; slot.text = token === null ? "░" : kind === "pad" ? "" : token.trim() || "␣"; slot.given = kind === "prompt"; slot.goal = points.at(-1)[1]; slot.stays = stays[s];
  });
  const words = slots.filter((slot) => !slot.edge), gap = drawn.close, labelled = withLabels(words.filter((slot) => slot.stays), drawn.apart);
  labelled.sort((a, b) => a.tip[1] - b.tip[1]);
  words.forEach((slot) => { slot.dot.setAttribute("cx", here); slot.dot.setAttribute("cy", slot.tip[1]); slot.label.setAttribute("visibility", labelled.includes(slot) ? "visible" : "hidden"); });
  const targets = spread(labelled, gap, end);
  labelled.forEach((slot, k) => { slot.y = slot.y === null || atOnce || reducedMotion.matches ? targets[k] : slot.y + (targets[k] - slot.y) * .3; });
  words.forEach((slot) => {
    slot.label.setAttribute("x", here + 9); slot.label.setAttribute("y", slot.y ?? slot.tip[1]); slot.label.style.fontSize = Math.min(14, gap - 1) + "px";
    if (slot.label.textContent !== slot.text) slot.label.textContent = slot.text;
  });
  const line = $("front");
  for (const [name, value] of Object.entries({x1: here, x2: here, y1: 4, y2: height - 24})) line.setAttribute(name, value);
  $("from").setAttribute("x", 6); $("to").setAttribute("x", x(steps)); $("to").setAttribute("text-anchor", "end");
  for (const id of ["from", "to"]) $(id).setAttribute("y", height - 8);
  $("now").replaceChildren(...reading(windows, part, step));
  stage.setAttribute("aria-label", `Paths of ${words.length} words over ${steps} steps; now: ${$("now").textContent}`);
  $("time").max = steps; $("time").value = Math.round(at);
  $("when").textContent = `step ${Math.round(at)} of ${steps}`; $("time").setAttribute("aria-valuetext", $("when").textContent);
  $("play").textContent = ticking && at < goal ? "Pause" : "Play";
  return labelled.some((slot, k) => Math.abs(slot.y - targets[k]) > .3);
}
function tick() { if (!ticking) { ticking = true; before = performance.now(); requestAnimationFrame(turn); } }
function turn(now) {
  if (!frames.length) { ticking = false; return; }
  const seconds = Math.max(0, Math.min(.1, (now - before) / 1000)); before = now;  // a frame's time may be earlier than the click
  at = Math.min(goal, at + seconds * Math.max(6, frames[0].steps / 2.5));
  const moves = draw(false);
  if (at < goal || moves) requestAnimationFrame(turn); else { ticking = false; $("play").textContent = "Play"; }
}

/* ---- the page ---- */
const STORAGE_KEY = "ddot";
function save() {  // the form survives a reload
  const form = {text: $("text").value, free: $("free").checked};
  for (const id of OPTIONS) form[id] = $(id).value;
  try { localStorage.setItem(STORAGE_KEY, JSON.stringify(form)); } catch { /* storage is disabled */ }
}
function restore(form) {
  if (typeof form.text === "string") $("text").value = form.text;
  $("free").checked = !!form.free;
  for (const id of OPTIONS) if (["string", "number"].includes(typeof form[id])) $(id).value = form[id];
}
function open() {  // a shared link, or the saved form
  let link = null;
  try { link = JSON.parse(decodeURIComponent(location.hash.slice(1))); } catch { /* not one of our links */ }
  if (!link || typeof link !== "object") {
    try { restore(JSON.parse(localStorage.getItem(STORAGE_KEY)) ?? {text: EXAMPLES[0][1]}); } catch { restore({text: EXAMPLES[0][1]}); }
    return;
  }
  const text = link.free ?? link.text;
  restore({...link, text, terminal: link.terminal ?? ""});
  const wrong = formError();
  if (wrong) return fail(wrong);
  filled = text; refills = 0;
  ask({...(link.free ? {free: text} : {text}), ...(link.fills ? {fills: link.fills} : {})}, null, link.pick);
}
function address() {
  const {text, free, fills, n, steps, seed, temperature, terminal} = sent;
  const link = {text, free, fills, n, steps, seed, temperature, terminal, pick: selected || undefined};
  if (results[selected].edited) {  // edited words are locked, so the link reproduces them
    const asked = shape.free ? null : lockedRequest();
    if (asked) Object.assign(link, {text: asked.text, fills: asked.fills});
  }
  return location.href.replace(/#.*/, "") + "#" + encodeURIComponent(JSON.stringify(link));
}
$("form").onsubmit = (event) => { event.preventDefault(); fill(); };
addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); fill(); } else if (event.key === "Escape") controller?.abort(); });
$("stop").onclick = () => controller?.abort();
$("again").onclick = fillAgain;
$("edit").onclick = () => { editing = !editing; $("edit").setAttribute("aria-pressed", editing); $("edit").textContent = editing ? "Done" : "Edit words"; showSentence(); };
$("copy").onclick = () => copy(textOf(results[selected]), $("copy"));
$("link").onclick = () => { const link = address(); history.replaceState(null, "", link); copy(link, $("link")); };
$("blank").onclick = () => { const box = $("text"); box.focus(); box.setRangeText("___", box.selectionStart, box.selectionEnd, "end"); save(); };
$("free").onchange = () => { if ($("free").checked && $("text").value.includes("___")) $("text").value = $("text").value.replace(/\s*_{3,}(\{[^}]*\})?\s*/g, " ").trim(); };
$("form").addEventListener("input", save); $("form").addEventListener("change", save);
$("examples").append(...EXAMPLES.map(([what, text, {free = false, terminal = ""} = {}]) => {
  const pieces = free ? [text] : text.split(/(_{3,}(?:\{[^}]*\})?)/).map((piece, i) => i % 2 ? make("b", {}, piece) : piece);
  const button = make("button", {type: "button"}, make("small", {}, what), make("span", {}, ...pieces));
  button.onclick = () => { $("text").value = text; $("free").checked = free; $("terminal").value = terminal; save(); fill(); };
  return make("li", {}, button);
}));
$("play").onclick = () => {
  if (ticking && at < goal) { goal = at; return; }
  if (at >= frames.length - 1) { at = 0; slots.forEach((slot) => { slot.y = null; }); }
  goal = frames.length - 1; tick();
};
$("time").oninput = () => { at = goal = Math.min(Number($("time").value), frames.length - 1); draw(true); };
$("part").onchange = () => show(windows, Number($("part").value));
addEventListener("resize", () => draw(true));
addEventListener("hashchange", open);
open();
