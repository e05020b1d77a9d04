// The console's page. The server computes the scores once; moving a threshold needs no request.
const $ = (id) => document.getElementById(id);
const UNKNOWN = "unknown";
const AT_ONCE = 16;         // files in a request
const REQUESTS = 2;         // concurrent requests
const MOST = 5000;          // chips on the page
const colours = Uint8Array.from(atob(document.body.dataset.colours), (c) => c.charCodeAt(0));

let run = null;             // the response of /api/run
let scale = null;           // the score that decides
let least = 0;              // the least detection score of a target
let current = null;         // the chip whose details are shown
let anchor = null;          // the chip that keyboard commands start from
const items = [];           // all chips, in order of arrival
const thresholds = {};      // name of a score to the threshold set on the page
const marks = new Map();    // id of a file to its mark
const pictures = new Map(); // number of a training chip to its picture
const queue = [];
let sending = 0, answered = 0;
let turn = 0;  // counts how often the chips were cleared

// ---- the server ----

{% include "ask.js" %}

// ---- verdicts ----

// Scores that are negative distances are displayed as distances.
const sign = () => (scale.unit === "distance" ? -1 : 1);
const shown = (value) => sign() * value;

function verdict(item) {
  const found = item.by_score?.[scale.name];
  if (!found) return null;
  const set = thresholds[scale.name];
  if (set === undefined) return found;
  const score = found.score ?? -Infinity;
  return {...found, threshold: set, guarantee: null, label: score >= set ? found.nearest : UNKNOWN};
}

function number(value) {
  if (value === null || value === undefined) return "–";
  return Math.abs(value) >= 1000 ? value.toPrecision(4) : String(Number(value.toPrecision(4)));
}

const percent = (p) => (p >= 0.9995 ? "100 %" : `${(100 * p).toFixed(1)} %`);

function sureness(found) {
  if (found.known_probability === null) return `${scale.unit === "distance" ? "distance" : "score"} ${number(shown(found.score))}`;
  return `${found.probability_is === "p-value" ? "p" : "known"} ${percent(found.known_probability)}`;
}

const promise = (found) => (found.guarantee === null ? "no guarantee" : `at least ${percent(found.guarantee)} guaranteed`);

// Whether an item counts: a target below the least detection score is none.
const counts = (item) => (item.detection ?? Infinity) >= least;  // Infinity: a chip, or a given box

function thresholdText(value) {
  if (value === null || value === undefined) {
    const each = items.some((item) => Number.isFinite(item.by_score?.[scale.name]?.threshold));
    return each ? "the run's, one for each class" : "none: the run accepts everything";
  }
  const text = number(shown(value));
  const exact = {logit: (v) => 1 / (1 + Math.exp(-v)), log: Math.exp}[scale.unit];
  return exact ? `${text} (γ ${number(exact(value))})` : text;
}

// ---- the desk: score, threshold, counts ----

const finite = () => items.filter(counts).map((item) => item.by_score?.[scale.name]?.score).filter(Number.isFinite);

function range() {
  const values = finite().map(shown);
  const set = thresholds[scale.name] ?? scale.threshold;
  if (set !== null && set !== undefined) values.push(shown(set));
  if (!values.length) return [0, 1];
  let low = values[0], high = values[0];
  for (const value of values) { low = Math.min(low, value); high = Math.max(high, value); }
  const room = Math.max((high - low) * 0.06, Math.abs(high) * 1e-3, 1e-6);
  return [low - room, high + room];
}

let ends = [0, 1];
function drawDesk() {
  const set = thresholds[scale.name], at = set ?? scale.threshold;
  const slider = $("slider"), moving = document.activeElement === slider;
  if (!moving) ends = range();
  const place = (value) => 1000 * (value - ends[0]) / (ends[1] - ends[0]);
  if (!moving) slider.value = at === null ? (sign() > 0 ? 0 : 1000) : Math.round(place(shown(at)));
  slider.setAttribute("aria-valuetext", thresholdText(at));
  $("threshold-text").textContent = set === undefined && at !== null ? `${thresholdText(at)}, the run's` : thresholdText(at);
  $("own").disabled = set === undefined;
  const lines = [];
  for (const item of items) {
    const found = verdict(item);
    if (!found || found.score === null || !counts(item)) continue;
    const x = place(shown(found.score)).toFixed(1);
    lines.push(`<line x1="${x}" x2="${x}" y1="8" y2="28" class="${found.label === UNKNOWN ? "unknown" : ""}"/>`);
  }
  if (at !== null) { const x = place(shown(at)).toFixed(1); lines.push(`<line class="at" x1="${x}" x2="${x}" y1="0" y2="28"/>`); }
  $("rug").innerHTML = lines.join("");  // safe: the lines contain only numbers
  count();
}

function count() {
  const there = items.filter(counts), good = there.map(verdict).filter(Boolean);
  const unknown = good.filter((found) => found.label === UNKNOWN).length;
  const failed = there.filter((item) => item.error).length;
  const wrong = there.filter((item) => marks.get(item.id)?.wrong).length;
  const words = [`${good.length} chip${good.length === 1 ? "" : "s"}: ${good.length - unknown} known, ${unknown} unknown`];
  if (failed) words.push(`${failed} unreadable`);
  if (wrong) words.push(`${wrong} marked wrong`);
  $("summary").textContent = words.join("; ");
}

function redraw() {
  for (const item of items) paint(item);
  drawDesk();
  filter();
  if (current) showMore(current, false);
}

// ---- chips ----

function element(tag, properties = {}, ...children) {
  const made = Object.assign(document.createElement(tag), properties);
  made.append(...children);
  return made;
}

function add(item) {
  items.push(item);
  item.node = element("div", {className: "waiting", tabIndex: -1});
  item.node.setAttribute("role", "option");
  item.node.setAttribute("aria-selected", "false");
  item.node.append(element("p", {className: "file", textContent: item.name}));
  item.node.addEventListener("focus", () => { anchor = item; roving(); heat(item); });
  item.node.addEventListener("pointerenter", () => heat(item));
  item.node.addEventListener("click", (event) => {
    if (item.error || !item.by_score) return;
    if (event.target.closest(".tick") || event.shiftKey || event.ctrlKey || event.metaKey) select(item, event.shiftKey);
    else showMore(item, false);
    item.node.focus();
  });
  $("chips").append(item.node);
  anchor ??= item;
}

function fill(item) {
  if (item.error) {
    item.node.className = "failed";
    item.node.setAttribute("aria-disabled", "true");
    item.node.replaceChildren(element("p", {textContent: `${item.name}: ${item.error}`}));
    return;
  }
  item.canvas = element("canvas", {width: 1, height: 1});
  item.title = element("span");
  item.sure = element("small");
  item.meter = element("div", {className: "meter"});
  item.tags = element("p", {className: "tags", hidden: true});
  const tick = element("span", {className: "tick"});
  tick.setAttribute("aria-hidden", "true");
  item.node.replaceChildren(
    tick,
    element("div", {className: "view"}, element("img", {src: item.picture, alt: ""}), item.canvas),
    element("p", {className: "verdict"}, item.title, item.sure),
    item.meter,
    element("p", {className: "file", textContent: item.name}),
    item.tags,
  );
  paint(item);
}

function paint(item) {
  const found = verdict(item);
  if (!found) return;
  const unknown = found.label === UNKNOWN, mark = marks.get(item.id);
  item.node.className = `${unknown ? "is-unknown" : ""} ${item === current ? "current" : ""}`;
  item.title.textContent = found.label;
  item.sure.textContent = sureness(found);
  item.meter.style.setProperty("--known", found.known_probability ?? 0);
  item.meter.hidden = found.known_probability === null;
  item.tags.replaceChildren();
  if (mark?.wrong) item.tags.append(element("span", {className: "wrong", textContent: "wrong"}));
  if (mark?.group) item.tags.append(element("span", {textContent: mark.group}));
  item.tags.hidden = !item.tags.childNodes.length;
}

function visible(item) {
  const wanted = $("filter").value;
  if (!counts(item)) return false;
  if (item.error) return wanted === "all" || wanted === "errors";
  const found = verdict(item);
  if (!found || wanted === "all") return wanted === "all";
  if (wanted === "marked") return marks.has(item.id);
  if (wanted.startsWith("class:")) return found.label === wanted.slice(6);
  return wanted === (found.label === UNKNOWN ? "unknown" : "known");
}

function filter() {
  for (const item of items) item.node.hidden = !visible(item);
  if (!anchor || anchor.node.hidden) anchor = items.find((item) => !item.node.hidden) ?? null;
  roving();
  chosen();
}

function roving() {
  for (const item of items) item.node.tabIndex = item === anchor ? 0 : -1;
}

// ---- selection, marks, groups ----

const selected = () => items.filter((item) => item.selected && !item.node.hidden);

function select(item, through = false, value = !item.selected) {
  const from = through && anchor ? items.indexOf(anchor) : items.indexOf(item), to = items.indexOf(item);
  for (const one of items.slice(Math.min(from, to), Math.max(from, to) + 1)) {
    if (one.error || one.node.hidden || !one.by_score) continue;
    one.selected = through || value;
    one.node.setAttribute("aria-selected", one.selected);
  }
  anchor = item;
  chosen();
}

function chosen() {
  drawScene();
  if (current) $("more-select").setAttribute("aria-pressed", current.selected);
  const all = selected();
  $("chosen").textContent = all.length ? `${all.length} selected.` : "Nothing selected.";
  $("acts").hidden = !all.length;
  $("enrol-field").hidden = !run.enrols.length || takes();
  const wrong = all.length && all.every((item) => marks.get(item.id)?.wrong);
  $("wrong").textContent = wrong ? "Not wrong" : "Mark wrong";
  $("groups").replaceChildren(...[...new Set([...marks.values()].map((mark) => mark.group).filter(Boolean))]
    .map((group) => element("option", {value: group})));
}

// Changes are made one after another: each depends on the marks that the previous one leaves.
let marking = Promise.resolve();
function mark(some, change) {
  // Without the catch, one failure would end all later changes.
  marking = marking.then(() => put(some, change)).catch((error) => tell(`The marks were not saved: ${error.message}`));
  return marking;
}

async function put(some, change) {
  const kept = [], gone = [];
  for (const item of some) {
    const found = verdict(item), before = marks.get(item.id);
    const after = {wrong: before?.wrong ?? false, group: before?.group ?? "", ...change(before)};
    if (!after.wrong && !after.group) { if (before) gone.push(item.id); continue; }
    kept.push({id: item.id, name: item.name.slice(-200), wrong: after.wrong, group: after.group, label: found.label,
      nearest: found.nearest, decides: found.decides, score: found.score, threshold: found.threshold});
  }
  for (let start = 0; start < kept.length; start += 500) {
    const some = kept.slice(start, start + 500);
    const response = await ask("/api/marks", {method: "POST", headers: {"Content-Type": "application/json"}, body: JSON.stringify({marks: some})});
    if (!response.ok) { tell(`The marks were not saved: ${await detail(response)}`); return; }
    for (const one of some) marks.set(one.id, one);
  }
  for (let start = 0; start < gone.length; start += 50) {
    const some = gone.slice(start, start + 50);
    const response = await ask(`/api/marks?${some.map((id) => `id=${id}`).join("&")}`, {method: "DELETE"});
    if (!response.ok) { tell(`The marks were not deleted: ${await detail(response)}`); return; }
    for (const id of some) marks.delete(id);
  }
  redraw();
}

function markWrong(some) {
  const wrong = !some.every((item) => marks.get(item.id)?.wrong);  // toggles, as the button's label says
  return mark(some, () => ({wrong}));
}

const nameGroup = () => mark(selected(), () => ({group: $("group").value.trim()}));

// Whether the present score accepts new classes; otherwise another score decides after an enrolment.
const takes = () => run.enrols.includes(scale.name);

// Sends chips of a class, and waits until the run knows them.
async function enrolOnce(name, score, some) {
  const form = new FormData();
  for (const item of some) form.append("images", item.file, item.name.split("/").pop());
  const response = await ask(`/api/enrol?${new URLSearchParams({name, score})}`, {method: "POST", body: form});
  if (!response.ok) return {state: "failed", detail: await detail(response)};
  tell(`Enrolling ${name}. Until this is done, predictions do not change.`);
  let enrolment;
  do {
    await new Promise((done) => setTimeout(done, 700));
    enrolment = await (await ask("/api/enrol")).json();
  } while (enrolment.state === "busy");
  return enrolment;
}

// Adds the selected chips to the run as a class, then predicts all chips again.
async function enrol() {
  const name = $("group").value.trim(), some = selected();
  if (!name) { $("group").focus(); tell("Name the group first: its name becomes that of the class."); return; }
  await nameGroup();
  const score = takes() ? scale.name : $("enrol-by").value;
  const left = [...some], done = [];
  let failed = "";
  $("enrol").disabled = true;
  try {
    while (left.length && !failed) {
      const count = some.length - left.length, {state, detail} = await enrolOnce(name, score, taken(left, some.length));
      if (state === "failed") failed = `${name} was not enrolled${count ? ` beyond ${count} chips` : ""}: ${detail}`;
      else done.push(detail);
    }
  } catch (error) {
    tell(`The server did not say whether ${name} is enrolled: ${error.message}`);
    return;
  } finally { $("enrol").disabled = false; }
  if (done.length) await describe();
  tell(failed || `${name} is enrolled: ${done.join(", then ")}.`);
  if (!done.length) return;
  const again = items.filter((item) => item.by_score);
  for (const item of again) item.heat = null;
  answered -= again.length;
  queue.push(...again);
  progress();
  while (sending < REQUESTS && queue.length) send();
}

function tell(text) {
  $("note").textContent = text;
  $("note").hidden = !text;
}

// ---- heat maps ----

function heat(item) {
  if (!run.explains || !item.by_score) return Promise.resolve(null);
  item.heat ??= (async () => {
    await new Promise((done) => setTimeout(done, 120));
    if (!item.node.matches(":hover, :focus") && item !== current) { item.heat = null; return null; }
    const response = await ask("/api/explain", {method: "POST", headers: {"Content-Type": "application/octet-stream"}, body: item.file}).catch(() => null);
    if (!response?.ok) { item.heat = null; return null; }
    const map = await response.json();
    drawMap(item.canvas, map, true);
    return map;
  })();
  return item.heat;
}

// Over a chip, pixels with low saliency are more transparent.
function drawMap(canvas, map, over = false) {
  canvas.width = map.width;
  canvas.height = map.height;
  const image = new ImageData(map.width, map.height);
  map.saliency.flat().forEach((value, place) => {
    const at = 3 * Math.round(255 * value);
    image.data.set([colours[at], colours[at + 1], colours[at + 2], over ? 40 + 165 * value : 255], 4 * place);
  });
  canvas.getContext("2d").putImageData(image, 0, 0);
}

// ---- one chip in detail ----

async function showMore(item, focus = true) {
  const before = current, found = verdict(item);
  if (!found) return;  // not yet predicted by a score that was added
  current = item;
  if (before !== item) {
    fromStage = document.activeElement === stage;
    if (item.scene) lookAt(item);
  }
  if (before && before !== item) paint(before);
  paint(item);
  chosen();
  $("more").hidden = false;
  $("more-name").textContent = item.name;
  $("more-verdict").textContent = `${found.label === UNKNOWN ? `unknown, nearest to ${found.nearest}` : found.label}: ` +
    `${sureness(found)}; ${scale.title} ${number(shown(found.score))}, threshold ${found.threshold === null ? "none" : number(shown(found.threshold))}, ${promise(found)}`;
  $("more-chip").src = item.picture;
  $("more-map").hidden = !run.explains;
  const shares = Object.entries(found.probabilities).sort((a, b) => b[1] - a[1]).slice(0, 6);
  $("more-probabilities").replaceChildren(...shares.map(([name, share]) => {
    const meter = element("div", {className: "meter"});
    meter.style.setProperty("--known", share);
    return element("div", {className: "share"}, element("span", {textContent: name}), meter, element("span", {textContent: percent(share)}));
  }));
  $("near-title").hidden = !item.neighbours?.length;
  $("near").replaceChildren(...(item.neighbours ?? []).map((near) => {
    const img = element("img", {alt: ""});
    picture(near.id).then((source) => { if (source) img.src = source; });
    const label = element("span", {textContent: near.label, className: near.label === found.nearest ? "" : "other"});
    return element("li", {title: near.path ?? `#${near.id}`}, img, label, element("small", {textContent: number(near.distance)}));
  }));
  const wrong = Boolean(marks.get(item.id)?.wrong);
  $("more-wrong").setAttribute("aria-pressed", wrong);
  if (focus) $("more").focus();
  const map = await heat(item);
  if (map && current === item) {
    drawMap($("more-canvas"), map);
    $("more-method").textContent = `${run.explains} for ${map.label}`;
  }
}

function hideMore() {
  const item = current;
  current = null;
  $("more").hidden = true;
  if (!item) return;
  paint(item);
  (onStage(item) ? $("stage") : item.node).focus();
  drawScene();
}

function picture(id) {
  if (!pictures.has(id)) {
    const asked = ask(`/api/examples/${id}`).then(async (response) => (response.ok ? URL.createObjectURL(await response.blob()) : ""));
    pictures.set(id, asked.catch(() => { pictures.delete(id); return ""; }));
  }
  return pictures.get(id);
}

// ---- uploads ----

async function receive(files) {
  await ready;
  if (document.querySelector("[name=kind]:checked").value === "scenes") return openScenes(files);
  const room = MOST - items.length;
  if (files.length > room) tell(`The page shows at most ${MOST} chips: the others were left out. For more, use jaxatr predict on a folder.`);
  for (const [name, file] of files.slice(0, Math.max(0, room))) {
    const item = {name, file, selected: false};
    add(item);
    if (file.size > run.body - 4096) {
      Object.assign(item, {error: `${(file.size / 1e6).toFixed(1)} MB, wanted at most ${(run.body / 1e6).toFixed(0)}`});
      fill(item);
      answered++;
    } else queue.push(item);
  }
  if (!items.length) return;
  reveal();
  while (sending < REQUESTS && queue.length) send();
}

function reveal() {
  $("drop").classList.add("small");
  $("desk").hidden = $("work").hidden = false;
  $("sheet").hidden = !items.length;
  drawDesk();
  filter();
}

// Takes chips off the beginning of a list: as many as a request may have.
function taken(from, most) {
  const some = [];
  let bytes = 0;
  while (from.length && some.length < Math.min(most, run.images)) {
    bytes += from[0].file.size + 1024;
    if (some.length && bytes > run.body / 2) break;
    some.push(from.shift());
  }
  return some;
}

async function send() {
  sending++;
  while (queue.length) {
    const some = taken(queue, AT_ONCE), asked = turn;
    try { await predict(some); } catch (error) { for (const item of some) take(item, {error: String(error.message ?? error)}); }
    if (asked !== turn) continue;  // cleared meanwhile
    for (const item of some) fill(item);
    answered += some.length;
    progress();
    drawDesk();
    filter();
    if (some.some((item) => item === current)) showMore(current, false);
  }
  sending--;
}

async function predict(some) {
  const form = new FormData();
  for (const item of some) form.append("images", item.file, item.name.split("/").pop());
  const response = await ask(`/api/predict?every_score=true&pictures=true&neighbours=${run.neighbours}`, {method: "POST", body: form});
  const answer = await response.json();
  if (!answer.results) throw new Error(answer.detail ?? response.statusText);
  answer.results.forEach(({name: _, ...rest}, place) => take(some[place], rest));
}

// A chip that is predicted again, after an enrolment, keeps nothing of the answer before.
function take(item, given) {
  Object.assign(item, {by_score: undefined, error: undefined}, given);
  if (!item.by_score && item.selected) {
    item.selected = false;
    item.node.setAttribute("aria-selected", "false");
  }
}

function progress() {
  const bar = $("progress");
  bar.max = items.length;
  bar.value = answered;
  bar.hidden = answered === items.length;
}

// The files of a dropped entry; the paths of those that cannot be read join lost.
async function entries(entry, lost, path = "") {
  const found = [];
  if (entry.name.startsWith(".")) return found;
  try {
    if (entry.isFile) return [[path + entry.name, await new Promise((done, fail) => entry.file(done, fail))]];
    const reader = entry.createReader();
    for (;;) {  // readEntries returns a hundred entries at a time
      const some = await new Promise((done, fail) => reader.readEntries(done, fail));
      if (!some.length) break;
      for (const one of some) if (found.length <= MOST) found.push(...await entries(one, lost, `${path}${entry.name}/`));
    }
  } catch { lost.push(path + entry.name); }
  return found;
}

const listed = (files) => [...files].filter((file) => !file.name.startsWith(".")).map((file) => [file.webkitRelativePath || file.name, file]);

// ---- the table ----

function cell(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return String(value);
  const text = /^[=+\-@\t\r]/.test(value) ? `'${value}` : String(value);  // not a spreadsheet formula
  return /[",\n\r]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

function table() {
  const columns = ["name", "id", "label", "nearest", "score_name", "score", "threshold", "threshold_is", "guarantee", "label_of_run",
    "known_probability", "known_probability_is", "p_value", "wrong", "group", "error"];
  const ofScenes = scenes.length ? ["scene", "x0", "y0", "x1", "y1", "detection_score"] : [];
  const place = (item) => ofScenes.length ? [item.scene?.name, ...(item.box ?? Array(4).fill(null)), item.detection] : [];
  const rows = items.filter(counts).map((item) => {
    const found = verdict(item), mark = marks.get(item.id);
    if (!found) return [item.name, item.id, ...Array(13).fill(null), item.error ?? "not answered yet", ...run.classes.map(() => null), ...place(item)];
    const moved = thresholds[scale.name] !== undefined;
    return [item.name, item.id, found.label, found.nearest, scale.name, found.score, found.threshold, moved ? "set on the page" : "the run's",
      found.guarantee, item.by_score[scale.name].label, found.known_probability, found.probability_is, found.p_value, mark?.wrong ? "yes" : "", mark?.group ?? "", "",
      ...run.classes.map((name) => found.probabilities[name] ?? null), ...place(item)];
  });
  const head = [...columns, ...run.classes.map((name) => `probability_${name}`), ...ofScenes];
  return [head, ...rows].map((row) => row.map(cell).join(",")).join("\n") + "\n";
}

function save() {
  const source = URL.createObjectURL(new Blob([table()], {type: "text/csv"}));
  element("a", {href: source, download: `${run.run}.csv`}).click();
  setTimeout(() => URL.revokeObjectURL(source), 1000);
}

// ---- keys ----

function step(key) {
  const shownItems = items.filter((item) => !item.node.hidden);
  const place = shownItems.indexOf(anchor);
  const top = shownItems[0]?.node.offsetTop;
  const across = Math.max(1, shownItems.filter((item) => item.node.offsetTop === top).length);
  const to = {ArrowRight: place + 1, ArrowLeft: place - 1, ArrowDown: place + across, ArrowUp: place - across, Home: 0, End: shownItems.length - 1}[key];
  return shownItems[Math.max(0, Math.min(shownItems.length - 1, to))];
}

$("chips").addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || !anchor) return;
  const usable = anchor.by_score && !anchor.error, some = selected();
  if (/^(Arrow|Home|End)/.test(event.key)) {
    const next = step(event.key);
    if (event.shiftKey) select(next, true);
    next?.node.focus();
    if (current && next?.by_score) showMore(next, false);
  } else if (event.key === " " && usable) select(anchor);
  else if (event.key === "Enter" && usable) showMore(anchor);
  else if (event.key.toLowerCase() === "w" && usable) markWrong(some.length ? some : [anchor]);
  else if (event.key.toLowerCase() === "g" && usable) { if (!some.length) select(anchor); $("group").focus(); }
  else return;
  event.preventDefault();
});
document.addEventListener("keydown", (event) => { if (event.key === "Escape" && current) hideMore(); });

// ---- controls ----

$("slider").addEventListener("input", () => {
  thresholds[scale.name] = sign() * (ends[0] + $("slider").value / 1000 * (ends[1] - ends[0]));
  redraw();
});
$("slider").addEventListener("change", redraw);
$("own").addEventListener("click", () => { delete thresholds[scale.name]; redraw(); });
$("score").addEventListener("change", () => { scale = run.scores.find((one) => one.name === $("score").value); redraw(); });
$("filter").addEventListener("change", filter);
$("export").addEventListener("click", save);
$("clear").addEventListener("click", () => {
  queue.length = items.length = answered = 0;
  turn++;
  progress();
  current = anchor = null;
  $("chips").replaceChildren();
  $("desk").hidden = $("work").hidden = $("more").hidden = true;
  closeScenes();
  $("drop").classList.remove("small");
  tell("");
});
$("all").addEventListener("click", () => {
  const every = items.filter((item) => !item.node.hidden && !item.error && item.by_score);
  const value = !every.every((item) => item.selected);
  for (const item of every) { item.selected = value; item.node.setAttribute("aria-selected", value); }
  chosen();
});
$("wrong").addEventListener("click", () => markWrong(selected()));
$("name").addEventListener("click", nameGroup);
$("enrol").addEventListener("click", enrol);
$("group").addEventListener("keydown", (event) => { if (event.key === "Enter") nameGroup(); });
$("more-wrong").addEventListener("click", () => markWrong([current]));
$("more-select").addEventListener("click", () => select(current));
$("close").addEventListener("click", hideMore);
$("marks").addEventListener("click", async (event) => {  // a plain link would not send the token
  event.preventDefault();
  const response = await ask("/api/marks.csv");
  if (!response.ok) { tell(`The marks cannot be read: ${await detail(response)}`); return; }
  const source = URL.createObjectURL(await response.blob());
  element("a", {href: source, download: "marks.csv"}).click();
  setTimeout(() => URL.revokeObjectURL(source), 1000);
});
$("choose").addEventListener("click", () => $("files").click());
$("choose-folder").addEventListener("click", () => $("folder").click());
for (const id of ["files", "folder"]) {
  $(id).addEventListener("change", () => { receive(listed($(id).files)); $(id).value = ""; });
}
document.addEventListener("paste", (event) => { if (event.clipboardData.files.length) receive(listed(event.clipboardData.files)); });
document.addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("dragged"); });
document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("dragged"); });
document.addEventListener("drop", async (event) => {
  event.preventDefault();
  document.body.classList.remove("dragged");
  // Read before the first await: the browser empties the list after the event.
  const dropped = [...event.dataTransfer.items].map((one) => [one.webkitGetAsEntry?.(), one.getAsFile()]);
  const found = [], lost = [];
  for (const [entry, file] of dropped) {
    if (entry) found.push(...await entries(entry, lost));
    else if (file) found.push([file.name, file]);
  }
  if (lost.length) tell(`The browser cannot read ${lost.slice(0, 3).join(", ")}${lost.length > 3 ? ` and ${lost.length - 3} more` : ""}.`);
  receive(found);
});

{% include "console_scene.js" %}
// ---- the start ----

async function describe() {
  run = await (await ask("/api/run")).json();
  scale = run.scores[0];
  document.title = `${run.run} · jaxatr console`;
  $("run").textContent = run.run;
  $("about").textContent = `A ${run.kind} of ${run.classes.length} classes: ${run.classes.slice(0, 12).join(", ")}${run.classes.length > 12 ? " …" : ""}`;
  $("label").hidden = !run.labels;
  describeKind();
  const filtered = $("filter").value;
  $("filter-classes").replaceChildren(...run.classes.map((name) => element("option", {value: `class:${name}`, textContent: name})));
  $("filter").value = filtered;
  if (run.note || run.no_neighbours) tell([run.note, run.no_neighbours && `No nearest training chips: ${run.no_neighbours}`].filter(Boolean).join(" "));
  $("score").replaceChildren(...run.scores.map((one) => element("option", {value: one.name, textContent: one.title})));
  $("score-field").hidden = run.scores.length < 2;
  $("near-title").hidden = !run.neighbours;
  $("enrol").hidden = !run.enrols.length;
  $("enrol-by").replaceChildren(...["auto", ...run.enrols].map((name) => element("option", {value: name, textContent: name})));
}

const ready = (async () => {
  await describe();
  beginScenes();
  const response = await ask("/api/marks");
  if (response.ok) for (const one of (await response.json()).marks) marks.set(one.id, one);
  else tell(`The marks cannot be read: ${await detail(response)}`);
  document.body.dataset.ready = "true";
})();
