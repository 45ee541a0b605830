"use strict";
const $ = (id) => document.getElementById(id);
const make = (tag, attributes = {}, ...children) => {
  const svg = ["svg", "g", "path", "text", "circle", "line"].includes(tag);
  const node = svg ? document.createElementNS("http://www.w3.org/2000/svg", tag) : document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);  // strings become text, never markup
  return node;
};
const calm = matchMedia("(prefers-reduced-motion: reduce)");
const EXAMPLES = ["We were so ___ wedding.", "The police are looking for ___{3,8} near the station.", "I ordered ___ and ___, but the waiter ___{2,6}.",
  "He was born in ___ and moved to ___ in 1998.", "___ is the best thing about ___."];

/* ---- what is filled, and what is locked ---- */
// `parts`: literals (strings) and blanks {bounds, words: [{text, gap, locked}], whole}. `shape` says how to make them from a reply.
let shape = null, results = [], selected = 0, runs = new Map(), controller = null;

const escaped = (text) => text.replace(/(?<!\\)(\\*)(_{3,}|<mask>|\[MASK\]|\[blank\]|<extra_id_[0-9]+>)/g, (all, slashes) => "\\".repeat(slashes.length + 1) + all);
function write(literals, blanks) {  // a text that is read as just these literals and blanks
  let text = escaped(literals.at(-1));
  for (let i = blanks.length - 1; i >= 0; i--) {
    const {least, most} = blanks[i], literal = literals[i];
    const bounds = least || most !== null || /^(_|\{|\\\{)/.test(text) ? `{${least},${most ?? ""}}` : "";
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
function locked() {  // what to ask for, so that locked words stay: {text, fills, shape}; null if nothing is left to fill
  const parts = results[selected].parts, literals = [""], blanks = [], fills = [], next = {free: shape.free, literals: shape.literals, blanks: []};
  let left = 0;
  const open = (bounds, fill) => { blanks.push(bounds); fills.push(fill); literals.push(""); left += fill === null; return blanks.length - 1; };
  for (const part of parts) {
    if (typeof part === "string") { literals[literals.length - 1] += part; continue; }
    const some = part.words.filter((word) => word.locked).length, items = [];
    if (some === part.words.length && some) items.push({open: open(part.bounds, spelled(part.words)), locked: true});
    else if (!some) items.push({open: open(part.bounds, null)});
    else {
      const bounded = part.bounds.least > 0 || part.bounds.most !== null;  // then every run of words keeps its number of them
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

/* ---- asking ---- */
function fail(sentence) { $("error").textContent = sentence; $("error").hidden = false; }
function settings() {
  const number = (id) => $(id).value === "" ? undefined : Number($(id).value);
  return {n: number("n"), steps: number("steps"), seed: (number("seed") || 0) + again, temperature: number("temperature"), terminal: $("terminal").value || null, stream: true};
}
async function ask(body, nextShape) {
  controller?.abort();
  const mine = controller = new AbortController();
  $("error").hidden = true; $("stop").hidden = false; $("go").disabled = $("again").disabled = true;
  document.body.setAttribute("aria-busy", "true");
  const heard = new Map(); let showing = false;
  try {
    const headers = {"Content-Type": "application/json"};
    if ($("key").value) headers.Authorization = "Bearer " + $("key").value;
    const reply = await fetch("v1/infill", {method: "POST", headers, body: JSON.stringify({...settings(), ...body}), signal: mine.signal});
    if (!reply.ok) {
      const told = await reply.json().catch(() => null);
      if (reply.status === 401) { $("more").open = true; $("key").focus(); }
      return fail(told?.error?.message ?? `The server answered with status ${reply.status}.`);
    }
    for await (const event of events(reply.body)) {
      if (event.error) return fail(event.error.message);
      if (event.type === "frame") {
        const run = event.step ? heard.get(event.attempt) : [];  // anew for the next window of a long text
        run.push(event); heard.set(event.attempt, run);
        if (!showing) { showing = true; runs = heard; begin(); }
        $("status").textContent = `${event.attempt ? `attempt ${event.attempt + 1}, ` : ""}step ${event.step} of ${event.steps}`;
        if (event.attempt === 0) { follow(run); $("sentence").textContent = reading(event); }
      } else if (event.type === "result") {
        runs = heard; shape = nextShape ?? {...plain(event), free: !!body.free};
        results = event.results.map((each) => ({...each, parts: null})); results.forEach((each) => { each.parts = partsOf(each); });
        $("status").textContent = `${results.length} ${results.length === 1 ? "fill" : "different fills"} in ${event.seconds.toFixed(1)} s`;
        choose(0);
      }
    }
  } catch (error) {
    if (error.name === "AbortError") $("status").textContent = "stopped";
    else fail("The server cannot be reached; is ddot serve still running?");
  } finally {
    if (controller === mine) { controller = null; $("stop").hidden = true; $("go").disabled = $("again").disabled = false; document.body.removeAttribute("aria-busy"); }
  }
}
async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader(); let rest = "";
  for (;;) {
    const {done, value} = await reader.read();
    if (done) return;
    const blocks = (rest + value).split("\n\n"); rest = blocks.pop();
    for (const block of blocks) yield JSON.parse(block.replace(/^data: /, ""));
  }
}
let filled = "", again = 0;  // the text that was filled; how often it was filled again, each time with the next seed
function fill() { const text = filled = $("text").value; again = 0; ask($("free").checked ? {free: text} : {text}, null); }
function fillAgain() {
  if ($("text").value !== filled) return fail("The text has changed since it was filled; press Fill to fill the new one.");
  again += 1;
  if (shape.free) {
    const fills = results[selected].parts.filter((part) => typeof part !== "string").map((part) => part.words.some((word) => word.locked) ? spelled(part.words) : null);
    const next = {...shape, blanks: shape.blanks.map((blank, i) => ({...blank, items: [{open: i, locked: fills[i] !== null}]}))};
    return ask({free: $("text").value, fills}, next);
  }
  const asked = locked();
  if (!asked) return fail("Every word is locked; unlock one to fill again.");
  ask({text: asked.text, fills: asked.fills}, asked.shape);
}

/* ---- showing fills ---- */
function begin() { $("found").hidden = $("watch").hidden = false; $("fills").replaceChildren(); $("again-row").hidden = true; $("sentence").replaceChildren(); }
function choose(index) {
  selected = index; $("again-row").hidden = false; $("found").hidden = false;
  showSentence(); showList();
  const run = runs.get(results[index].attempt);
  $("watch").hidden = !run;
  if (run) show(run, run.length - 1);
}
const LOCK = "M4.5 7V5a3.5 3.5 0 0 1 7 0v2M3 7h10v7H3z";
function showSentence() {
  const all = [];
  let number = 0;
  for (const part of results[selected].parts) {
    if (typeof part === "string") { all.push(part); continue; }
    number++;
    if (!part.words.length) { if (!shape.free) all.push(make("span", {class: "empty", title: "left empty"}, "∅")); continue; }
    const toggle = (words, to) => { (shape.free ? part.words : words).forEach((word) => { word.locked = to; }); showSentence(); };
    part.words.forEach((word, i) => {
      const button = make("button", {class: "word", type: "button", "aria-pressed": word.locked, title: word.locked ? "Unlock this word" : "Lock this word", "data-at": `${number}.${i}`}, word.text);
      button.onclick = () => { toggle([word], !word.locked); $("sentence").querySelector(`[data-at="${button.dataset.at}"]`).focus(); };
      all.push(word.before, button, word.after);
    });
    const every = part.words.every((word) => word.locked);
    const icon = make("svg", {viewBox: "0 0 16 16", "aria-hidden": "true"}, make("path", {d: LOCK}));
    const button = make("button", {class: "whole", type: "button", "aria-pressed": every, "aria-label": `Lock fill ${number}`, title: every ? "Unlock this fill" : "Lock this whole fill", "data-at": `${number}.all`}, icon);
    button.onclick = () => { toggle(part.words, !every); $("sentence").querySelector(`[data-at="${button.dataset.at}"]`).focus(); };
    const tail = all.pop(); all.push(button, tail);
  }
  $("sentence").replaceChildren(...all);
  const count = results[selected].parts.flatMap((part) => part.words ?? []).filter((word) => word.locked).length;
  $("again").textContent = count ? "Fill the rest again" : "Fill again";
  $("locks").textContent = count ? `${count} ${count === 1 ? "word is" : "words are"} locked and will stay.` : "Click words to lock them; the rest is filled again.";
}
function showList() {
  $("fills").replaceChildren(...results.map((result, index) => {
    const what = make("span", {class: "what"}, ...result.parts.map((part) => typeof part === "string" ? part : make("b", {}, spelled(part.words))));
    const bar = make("span", {class: "bar"}, make("i")); bar.firstChild.style.width = `${Math.round(100 * Math.exp(result.score))}%`;
    const score = make("span", {class: "score"}, result.score.toFixed(2).replace("-", "−"), bar);
    const button = make("button", {type: "button", "aria-pressed": index === selected}, make("span", {class: "rank"}, `${index + 1}`), what, score);
    button.onclick = () => { choose(index); $("fills").children[index].firstChild.focus(); };
    return make("li", {}, button);
  }));
}

/* ---- drawing paths: time to the right, place downwards ---- */
let frames = [], slots = [], at = 0, goal = 0, ticking = false, before = 0;
const ROW = 23, GAP = 17;
function follow(run) { if (frames !== run) { setUp(run); at = 0; } goal = run.length - 1; if (calm.matches) at = goal; tick(); }
function show(run, place) { setUp(run); at = goal = place; draw(true); }
function setUp(run) {
  frames = run;
  const first = run[0], stage = $("stage");
  slots = first.tokens.map((token, i) => {
    const group = make("g"), lines = ["ghost", "hid", "known"].map((name) => make("path", {class: name}));
    const dot = make("circle", {r: 2.6}), label = make("text");
    const edge = first.kinds[i] === "prompt" && token === "";
    group.append(...lines, ...(edge ? [] : [dot, label]));
    return {group, lines, dot, label, edge, y: null};
  });
  const front = make("line", {id: "front"});
  stage.replaceChildren(make("text", {class: "axis", id: "from"}, "noise"), make("text", {class: "axis", id: "to"}, "text"), ...slots.map((slot) => slot.group), front);
}
function ascending(values) {  // the nearest numbers that never fall
  const blocks = [];
  for (let mean of values) {
    let count = 1;
    while (blocks.length && blocks.at(-1)[0] > mean) { const [other, more] = blocks.pop(); mean = (mean * count + other * more) / (count + more); count += more; }
    blocks.push([mean, count]);
  }
  return blocks.flatMap(([mean, count]) => Array(count).fill(mean));
}
function reading(frame) {
  const order = frame.positions.map((_, s) => s).sort((a, b) => frame.positions[a] - frame.positions[b] || a - b);
  return order.map((s) => frame.tokens[s] ?? " ░").join("").trim();
}
function draw(atOnce) {
  if (!frames.length) return;
  const stage = $("stage"), width = stage.clientWidth || 600, steps = frames[0].steps || 1, last = frames.at(-1);
  const shown = slots.filter((slot, i) => !slot.edge && last.kinds[i] !== "pad").length;
  const height = Math.max(200, shown * ROW) + 34, room = Math.min(130, width * .3);
  stage.setAttribute("viewBox", `0 0 ${width} ${height}`); stage.style.height = height + "px";
  let low = -1, high = 1;
  for (const frame of frames) for (const place of frame.positions) { low = Math.min(low, place); high = Math.max(high, place); }
  const x = (step) => 6 + step / steps * (width - room - 12), y = (place) => 14 + (place - low) / (high - low) * (height - 44);
  const i = Math.min(Math.floor(at), frames.length - 1), j = Math.min(i + 1, frames.length - 1), part = at - i;
  const now = frames[part > .98 ? j : i], here = x(i + (j - i) * part);
  const place = (slot) => frames[i].positions[slot] * (1 - part) + frames[j].positions[slot] * part;
  slots.forEach((slot, s) => {
    const points = frames.map((frame, k) => [x(k), y(frame.positions[s])]), tip = [here, y(place(s))];
    let known = frames.length;
    while (known > 0 && frames[known - 1].tokens[s] !== null) known--;
    const path = (some) => some.length > 1 ? "M" + some.map(([a, b]) => `${a.toFixed(1)} ${b.toFixed(1)}`).join("L") : "";
    const past = points.slice(0, i + 1).concat([tip]);
    slot.lines[0].setAttribute("d", path([tip, ...points.slice(i + 1)]));
    slot.lines[1].setAttribute("d", path(known <= i ? past.slice(0, known + 1) : past));
    slot.lines[2].setAttribute("d", known <= i ? path(past.slice(known)) : "");
    const token = now.tokens[s], kind = now.kinds[s];
    slot.group.setAttribute("class", slot.edge ? "edge prompt" : kind === "prompt" ? "prompt" : token === null ? "open" : kind);
    slot.tip = tip; slot.text = token === null ? "░" : kind === "pad" ? "" : token.trim() || "␣";
  });
  const labelled = slots.filter((slot) => !slot.edge).sort((a, b) => a.tip[1] - b.tip[1]);
  const settled = ascending(labelled.map((slot, k) => slot.tip[1] - GAP * k));
  labelled.forEach((slot, k) => {
    const target = settled[k] + GAP * k;
    slot.y = slot.y === null || atOnce || calm.matches ? target : slot.y + (target - slot.y) * .3;
    slot.dot.setAttribute("cx", here); slot.dot.setAttribute("cy", slot.tip[1]);
    slot.label.setAttribute("x", here + 9); slot.label.setAttribute("y", slot.y);
    if (slot.label.textContent !== slot.text) slot.label.textContent = slot.text;
  });
  const line = $("front");
  for (const [name, value] of Object.entries({x1: here, x2: here, y1: 4, y2: height - 24})) line.setAttribute(name, value);
  $("from").setAttribute("x", 6); $("to").setAttribute("x", x(steps)); $("to").setAttribute("text-anchor", "end");
  for (const id of ["from", "to"]) $(id).setAttribute("y", height - 8);
  const reads = reading(now);
  $("now").textContent = reads;
  stage.setAttribute("aria-label", `Paths of ${labelled.length} words over ${steps} steps; now: ${reads}`);
  $("time").max = steps; $("time").value = at;
  $("when").textContent = `step ${Math.round(at)} of ${steps}`; $("time").setAttribute("aria-valuetext", $("when").textContent);
  $("play").textContent = ticking && at < goal ? "Pause" : "Play";
  return labelled.some((slot, k) => Math.abs(slot.y - settled[k] - GAP * k) > .3);
}
function tick() { if (!ticking) { ticking = true; before = performance.now(); requestAnimationFrame(turn); } }
function turn(now) {
  const seconds = Math.max(0, Math.min(.1, (now - before) / 1000)); before = now;  // a frame may be older than the click
  at = Math.min(goal, at + seconds * Math.max(6, frames[0].steps / 2.5));
  const moves = draw(false);
  if (at < goal || moves) requestAnimationFrame(turn); else { ticking = false; $("play").textContent = "Play"; }
}

/* ---- the page ---- */
$("form").onsubmit = (event) => { event.preventDefault(); fill(); };
addEventListener("keydown", (event) => { if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) { event.preventDefault(); fill(); } else if (event.key === "Escape") controller?.abort(); });
$("stop").onclick = () => controller?.abort();
$("again").onclick = fillAgain;
$("blank").onclick = () => { const box = $("text"); box.focus(); box.setRangeText("___", box.selectionStart, box.selectionEnd, "end"); };
$("free").onchange = () => { if ($("free").checked && $("text").value.includes("___")) $("text").value = $("text").value.replace(/\s*_{3,}(\{[^}]*\})?\s*/g, " ").trim(); };
$("example").append(make("option", {value: ""}, "choose…"), ...EXAMPLES.map((text) => make("option", {value: text}, text)));
$("example").onchange = () => { if ($("example").value) { $("text").value = $("example").value; $("free").checked = false; $("example").value = ""; $("text").focus(); } };
$("play").onclick = () => {
  if (ticking && at < goal) { goal = at; return; }
  if (at >= frames.length - 1) { at = 0; slots.forEach((slot) => { slot.y = null; }); }
  goal = frames.length - 1; tick();
};
$("time").oninput = () => { at = goal = Math.min(Number($("time").value), frames.length - 1); draw(true); };
addEventListener("resize", () => draw(true));
