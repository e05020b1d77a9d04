// ---- scenes: the picture and the boxes of the targets, each of which is also a chip of the page ----

const palette = JSON.parse(document.body.dataset.palette);
const TILE = 512;           // side of a tile of the picture
const TILES = 128;          // most tiles that are kept
const TEXTS = 60;           // most boxes with a text
const scenes = [];          // all scenes, in order of arrival
const stage = $("stage"), canvas = $("stage-canvas"), pen = canvas.getContext("2d");
const view = {scale: 1, x: 0, y: 0, whole: true};  // x, y: the scene's point at the top left; scale: CSS pixels for its pixel
let scene = null;           // the scene that is shown; its picture is the only one in memory
let drawing = false, draft = null;  // whether a box is drawn, and its corners so far
let fromStage = false;      // whether the details were opened from the scene
let loading = Promise.resolve();

const onStage = (item) => fromStage && item.scene === scene;
const targets = () => (scene ? scene.items.filter((item) => !item.node.hidden) : []);
const say = (node, text) => { if (node.textContent !== text) node.textContent = text; };  // else it is read aloud again

// ---- uploads of scenes ----

async function openScenes(files) {
  const large = files.filter(([, file]) => file.size > run.body - 4096);
  if (large.length) tell(`${large[0][0]}: ${(large[0][1].size / 1e6).toFixed(1)} MB, wanted at most ${(run.body / 1e6).toFixed(0)}.`);
  for (const [name, file] of files.filter((one) => !large.includes(one))) {
    const one = {name, file, items: [], at: null, width: 0, height: 0, picture: null, tiles: new Map(), left: 0, asking: 0, state: "Waiting …"};
    scenes.push(one);
    loading = loading.then(() => search(one));
  }
  if (!scenes.length) return;
  nameScenes();
  $("scene").hidden = false;
  reveal();
  if (!scene) await show(scenes[0]);
}

// A scene that failed says so in the list, or it would be found by chance only.
function nameScenes() {
  $("scenes").replaceChildren(...scenes.map((one, place) => element("option", {value: place, textContent: one.failed ? `${one.name}: not searched` : one.name})));
  if (scene) $("scenes").value = scenes.indexOf(scene);
}

function sent(one) {
  const form = new FormData();
  form.append("images", one.file, one.name.split("/").pop());
  return {method: "POST", body: form};
}

const wholeAnswer = (more) => new URLSearchParams({files: true, every_score: true, pictures: true, neighbours: run.neighbours, ...more});

async function search(one) {
  if (!scenes.includes(one)) return;  // cleared meanwhile
  one.state = "";
  if (run.detector) {
    one.state = "Searching …";
    try {
      const answer = await asked(`/api/scenes/detect?${wholeAnswer({least: lowest()})}`, one);
      if (!scenes.includes(one)) return;
      one.left = answer.left_out;
      one.state = "";
      resize(one, answer.width, answer.height);
      for (const target of answer.targets) addTarget(one, target);
      reveal();
    } catch (error) {
      one.state = error.message;
      one.failed = true;
      nameScenes();
    }
  }
  drawScene();
}

async function asked(path, one, answer = "json") {
  one.asking++;
  drawScene();
  try {
    const response = await ask(path, sent(one));
    if (!response.ok) throw new Error(await detail(response));
    return await response[answer]();
  } finally { one.asking--; drawScene(); }
}

// A target becomes a chip of the page; the part of the scene that the server cut out is its file.
function addTarget(one, target) {
  if (items.length >= MOST) { tell(`The page shows at most ${MOST} chips: the other targets were left out. For more, use jaxatr detect.`); return null; }
  const {box, detection_score: detection, file, ...rest} = target;
  const name = `${one.name} #${one.items.length + 1}`;
  const item = {...rest, name, box, detection, scene: one, selected: false, file: fileOf(file, name)};
  one.items.push(item);
  add(item);
  fill(item);
  answered++;
  return item;
}

function fileOf(source, name) {
  if (!source) return null;
  const [head, text] = source.split(",");
  return new File([Uint8Array.from(atob(text), (c) => c.charCodeAt(0))], name, {type: head.slice(5).split(";")[0]});
}

async function show(one) {
  if (scene) { scene.picture?.close(); scene.picture = null; scene.tiles.clear(); }
  scene = one;
  stopDrawing();
  $("scenes").value = scenes.indexOf(one);
  view.whole = true;
  if (one.width) wholeView();
  drawScene();
  try {
    const content = await asked("/api/scenes/view", one, "blob");
    const picture = await createImageBitmap(content).catch(() => { throw new Error("the browser cannot show a picture of this size"); });
    if (scene !== one) { picture.close(); return; }
    one.picture = picture;
    resize(one, picture.width, picture.height);
  } catch (error) { one.state = `${one.name} cannot be shown: ${error.message}`; }
  drawScene();
}

function resize(one, width, height) {
  Object.assign(one, {width, height});
  if (one === scene && view.whole) wholeView();
}

function closeScenes() {
  scene?.picture?.close();
  scene = null;
  scenes.length = 0;
  stopDrawing();
  $("scene").hidden = true;
}

// ---- the view ----

function wholeView() {
  const width = stage.clientWidth, height = stage.clientHeight;
  if (!scene?.width || !width) return;
  view.scale = Math.min(width / scene.width, height / scene.height, 8);
  view.x = (scene.width - width / view.scale) / 2;
  view.y = (scene.height - height / view.scale) / 2;
  view.whole = true;
  drawScene();
}

// The middle of the view stays within the scene.
function move(x, y) {
  const halves = [stage.clientWidth / 2 / view.scale, stage.clientHeight / 2 / view.scale];
  view.x = Math.min(Math.max(x, -halves[0]), scene.width - halves[0]);
  view.y = Math.min(Math.max(y, -halves[1]), scene.height - halves[1]);
  view.whole = false;
  drawScene();
}

function zoom(factor, x = stage.clientWidth / 2, y = stage.clientHeight / 2) {
  if (!scene?.width) return;
  const fit = Math.min(stage.clientWidth / scene.width, stage.clientHeight / scene.height);
  const scale = Math.min(Math.max(view.scale * factor, Math.min(fit, 1) / 2), 40);
  const at = [view.x + x / view.scale, view.y + y / view.scale];
  view.scale = scale;
  move(at[0] - x / scale, at[1] - y / scale);
}

function bringIntoView({box: [x0, y0, x1, y1]}) {
  const width = stage.clientWidth, height = stage.clientHeight, side = Math.min(width, height);
  const size = Math.max(x1 - x0, y1 - y0) * view.scale;
  const inside = (x0 - view.x) * view.scale > 0 && (y0 - view.y) * view.scale > 0 &&
    (x1 - view.x) * view.scale < width && (y1 - view.y) * view.scale < height;
  if (inside && size >= 24 && size <= side * 0.7) return;
  if (size < 24) view.scale = Math.min(view.scale * 48 / size, 40);
  else if (size > side * 0.7) view.scale *= side * 0.4 / size;
  move((x0 + x1) / 2 - width / 2 / view.scale, (y0 + y1) / 2 - height / 2 / view.scale);
}

// Shows where the target is whose details are shown.
async function lookAt(item) {
  item.scene.at = item;
  if (item.scene !== scene) await show(item.scene);
  if (!fromStage && item.scene === scene && scene.width) bringIntoView(item);
}

// A tile of a pyramid: of level n, a pixel is 2 ** n pixels of the scene in both directions. Tiles are made as they are looked at.
function tile(level, column, row) {
  const key = `${level} ${column} ${row}`, kept = scene.tiles;
  let made = kept.get(key);
  if (made) kept.delete(key);  // and put it last: the first one is that which was not looked at for longest
  else {
    const side = TILE * 2 ** level, left = column * side, top = row * side;
    const width = Math.min(side, scene.width - left), height = Math.min(side, scene.height - top);
    made = element("canvas", {width: Math.ceil(width / 2 ** level), height: Math.ceil(height / 2 ** level)});
    const onto = made.getContext("2d");
    onto.imageSmoothingQuality = "high";
    onto.drawImage(scene.picture, left, top, width, height, 0, 0, width / 2 ** level, height / 2 ** level);
    if (kept.size >= TILES) kept.delete(kept.keys().next().value);
  }
  kept.set(key, made);
  return made;
}

let drawn = 0;
function drawScene() {
  if (scene && !drawn) drawn = requestAnimationFrame(() => { drawn = 0; if (scene) paintScene(); });
}

function paintScene() {
  const ratio = devicePixelRatio, scale = view.scale * ratio;
  const width = Math.round(stage.clientWidth * ratio), height = Math.round(stage.clientHeight * ratio);
  if (canvas.width !== width || canvas.height !== height) Object.assign(canvas, {width, height});
  pen.clearRect(0, 0, width, height);
  const across = (x) => Math.round((x - view.x) * scale), down = (y) => Math.round((y - view.y) * scale);
  if (scene.picture) paintTiles(scale, across, down);
  const all = targets();
  let texts = 0;
  for (const item of [...all].reverse()) {  // the surest ones last, on top
    const [left, top, right, bottom] = [across(item.box[0]), down(item.box[1]), across(item.box[2]), down(item.box[3])];
    if (right < 0 || bottom < 0 || left > width || top > height) continue;
    const marked = item === scene.at || item === current;
    outline(left, top, right - left, bottom - top, colour(item), ratio * (marked ? 4 : 2), dashed(item), item.selected);
    if (marked || (right - left >= 36 * ratio && texts++ < TEXTS)) {
      pen.font = `${12 * ratio}px system-ui, sans-serif`;
      pen.lineWidth = 3 * ratio;
      pen.strokeStyle = "#000";
      pen.fillStyle = "#fff";
      const text = (item.selected ? "✓ " : "") + (verdict(item)?.label ?? "not decided");
      const at = [Math.max(left, 2), top > 16 * ratio ? top - 5 * ratio : bottom + 14 * ratio];
      pen.strokeText(text, ...at);
      pen.fillText(text, ...at);
    }
  }
  if (draft) {
    const [x0, y0, x1, y1] = sorted(draft);
    outline(across(x0), down(y0), across(x1) - across(x0), down(y1) - down(y0), "#fff", 2 * ratio, true, false);
  }
  stage.setAttribute("aria-busy", scene.asking > 0);
  sayScene(all);
  drawLegend(all);
}

function paintTiles(scale, across, down) {
  const level = Math.max(0, Math.floor(Math.log2(1 / scale))), side = TILE * 2 ** level;
  pen.imageSmoothingEnabled = scale < 2;
  const last = [Math.ceil(scene.width / side) - 1, Math.ceil(scene.height / side) - 1];
  const at = (point, end) => Math.min(Math.max(Math.floor(point / side), 0), end);
  for (let row = at(view.y, last[1]); row <= at(view.y + canvas.height / scale, last[1]); row++) {
    for (let column = at(view.x, last[0]); column <= at(view.x + canvas.width / scale, last[0]); column++) {
      const left = across(column * side), top = down(row * side);
      const right = across(Math.min((column + 1) * side, scene.width)), bottom = down(Math.min((row + 1) * side, scene.height));
      pen.drawImage(tile(level, column, row), left, top, right - left, bottom - top);
    }
  }
}

function outline(left, top, width, height, ink, thick, dashes, filled) {
  if (filled) { pen.globalAlpha = 0.25; pen.fillStyle = ink; pen.fillRect(left, top, width, height); pen.globalAlpha = 1; }
  const small = Math.min(width, height) < 14 * devicePixelRatio;  // dashes and a wide rim would hide what is in it
  pen.setLineDash([]);
  pen.lineWidth = thick + (small ? 1 : 2) * devicePixelRatio;
  pen.strokeStyle = "rgb(0 0 0 / .65)";
  pen.strokeRect(left, top, width, height);
  if (dashes && !small) pen.setLineDash([6 * devicePixelRatio, 4 * devicePixelRatio]);
  pen.lineWidth = thick;
  pen.strokeStyle = ink;
  pen.strokeRect(left, top, width, height);
  pen.setLineDash([]);
}

function colourOf(label) {
  if (label === undefined) return palette.undecided;
  const place = run.classes.indexOf(label);
  return place < 0 ? palette.unknown : palette.known[place % palette.known.length];
}

const colour = (item) => colourOf(verdict(item)?.label);
const dashed = (item) => { const label = verdict(item)?.label; return label === undefined || label === UNKNOWN; };

function described(item, all) {
  const found = verdict(item), place = all.indexOf(item);
  const score = item.detection === null ? "a given box" : `detection ${number(item.detection)}`;
  const what = found ? `${found.label}, ${sureness(found)}` : `not decided: ${item.error}`;
  return `${place < 0 ? "Hidden target" : `Target ${place + 1} of ${all.length}`}: ${what}, ${score}${item.selected ? ", selected" : ""}`;
}

function sayScene(all) {
  let text = scene.at ? described(scene.at, all) : scene.state;
  if (drawing) text = "Drag a box around a target; or move the box with the arrows, size it with Shift, and press Enter.";
  if (!text) {
    const size = scene.width ? `${scene.width} × ${scene.height} pixels` : "…";
    const hidden = scene.items.length - all.length;
    text = `${size}: ${all.length} target${all.length === 1 ? "" : "s"}${hidden ? `, ${hidden} hidden` : ""}${scene.left ? `, and ${scene.left} of lower scores left out` : ""}`;
    if (!run.detector && !scene.items.length) text = `${size}. There is no detector: draw a box around a target.`;
  }
  say($("scene-status"), text);
}

let legend = "";
function drawLegend(all) {
  const counted = new Map();
  for (const item of all) {
    const label = verdict(item)?.label;
    counted.set(label, (counted.get(label) ?? 0) + 1);
  }
  const rows = [...counted].sort((a, b) => run.classes.indexOf(a[0]) - run.classes.indexOf(b[0]));
  if (legend === (legend = JSON.stringify(rows))) return;
  $("legend").replaceChildren(...rows.map(([label, count]) => {
    const swatch = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    const rect = swatch.appendChild(document.createElementNS("http://www.w3.org/2000/svg", "rect"));
    const dash = run.classes.includes(label) ? "none" : "4 2";
    for (const [name, value] of Object.entries({width: 16, height: 12.8, stroke: colourOf(label), "stroke-dasharray": dash})) rect.setAttribute(name, value);
    swatch.setAttribute("aria-hidden", "true");
    return element("li", {}, swatch, `${label ?? "not decided"} ${count}`);
  }));
}

// ---- targets in the scene ----

function choose(item) {
  scene.at = item;
  if (item) {
    anchor = item;
    roving();
    if (current && item.by_score) showMore(item, false);
  }
  drawScene();
}

function stepTarget(by) {
  const all = targets(), place = all.indexOf(scene.at);
  if (!all.length) return;
  const next = all[place < 0 ? (by > 0 ? 0 : all.length - 1) : (place + by + all.length) % all.length];
  choose(next);
  bringIntoView(next);
}

// The smallest box at a point, or within some pixels of it.
function hit(x, y, room = 5) {
  const point = [view.x + x / view.scale, view.y + y / view.scale], far = room / view.scale;
  const area = ({box}) => (box[2] - box[0]) * (box[3] - box[1]);
  const near = targets().filter(({box}) => point[0] > box[0] - far && point[0] < box[2] + far && point[1] > box[1] - far && point[1] < box[3] + far);
  return near.sort((a, b) => area(a) - area(b))[0] ?? null;
}

const sorted = ([x0, y0, x1, y1]) => [Math.min(x0, x1), Math.min(y0, y1), Math.max(x0, x1), Math.max(y0, y1)];

function startDrawing(byKey) {
  if (!scene?.width) return;
  drawing = true;
  const width = stage.clientWidth / view.scale, height = stage.clientHeight / view.scale, side = Math.min(width, height) / 8;
  const middle = [view.x + width / 2, view.y + height / 2];
  draft = byKey ? [middle[0] - side, middle[1] - side, middle[0] + side, middle[1] + side] : null;
  $("draw").setAttribute("aria-pressed", "true");
  stage.classList.add("drawing");
  if (byKey) stage.focus();
  drawScene();
}

function stopDrawing() {
  drawing = false;
  draft = null;
  $("draw").setAttribute("aria-pressed", "false");
  stage.classList.remove("drawing");
  drawScene();
}

async function finishDrawing() {
  const one = scene, [x0, y0, x1, y1] = sorted(draft);
  const box = [Math.max(x0, 0), Math.max(y0, 0), Math.min(x1, one.width), Math.min(y1, one.height)].map((value) => Math.round(value * 100) / 100);
  stopDrawing();
  if (!(box[2] > box[0] && box[3] > box[1])) { tell("The box is outside of the scene, or has no size."); return; }
  Object.assign(one, {at: null, state: "Deciding …"});
  drawScene();
  try {
    const answer = await asked(`/api/scenes/decide?${wholeAnswer({box})}`, one);
    if (!scenes.includes(one)) return;
    const item = addTarget(one, answer.targets[0]);
    reveal();
    if (item && scene === one) {
      choose(item);
      showMore(item, false);
    }
  } catch (error) { tell(`Nothing was decided about the box: ${error.message}`); }
  one.state = "";
  drawScene();
}

// ---- pointers and keys ----

const pointers = new Map();
let press = null;  // where a single pointer went down, and whether it has moved since

const placeOf = (event) => { const {left, top} = stage.getBoundingClientRect(); return [event.clientX - left, event.clientY - top]; };
const inScene = ([x, y]) => [view.x + x / view.scale, view.y + y / view.scale];

stage.addEventListener("pointerdown", (event) => {
  if (!scene?.width || event.button > 0) return;
  stage.focus({preventScroll: true});
  stage.setPointerCapture(event.pointerId);
  const at = placeOf(event);
  pointers.set(event.pointerId, at);
  press = pointers.size === 1 ? {at, moved: false} : null;
  if (drawing) draft = press ? [...inScene(at), ...inScene(at)] : null;
});
stage.addEventListener("pointermove", (event) => {
  const at = placeOf(event), before = pointers.get(event.pointerId);
  if (!scene?.width) return;
  if (!before) { stage.style.cursor = !drawing && hit(...at) ? "pointer" : ""; return; }
  const others = [...pointers].filter(([id]) => id !== event.pointerId).map(([, place]) => place);
  pointers.set(event.pointerId, at);
  if (others.length) {  // two fingers: their distance zooms, their middle moves
    const [other] = others, far = (place) => Math.max(1, Math.hypot(place[0] - other[0], place[1] - other[1]));
    zoom(far(at) / far(before), (at[0] + other[0]) / 2, (at[1] + other[1]) / 2);
    move(view.x - (at[0] - before[0]) / 2 / view.scale, view.y - (at[1] - before[1]) / 2 / view.scale);
    return;
  }
  if (press && Math.hypot(at[0] - press.at[0], at[1] - press.at[1]) > 4) press.moved = true;
  if (drawing && draft) { draft.splice(2, 2, ...inScene(at)); drawScene(); }
  else if (press?.moved) move(view.x - (at[0] - before[0]) / view.scale, view.y - (at[1] - before[1]) / view.scale);
});
function release(event) {
  if (!pointers.delete(event.pointerId)) return;
  const single = press;
  press = null;
  if (!single || event.type === "pointercancel") { draft = null; drawScene(); return; }
  if (drawing) {
    if (single.moved && draft) finishDrawing(); else draft = null;
    return;
  }
  if (single.moved) return;
  const item = hit(...single.at, event.pointerType === "mouse" ? 5 : 14);
  choose(item);
  if (item && (event.shiftKey || event.ctrlKey || event.metaKey)) { if (item.by_score) select(item); }
  else if (item?.by_score) showMore(item, false);
}
stage.addEventListener("pointerup", release);
stage.addEventListener("pointercancel", release);
stage.addEventListener("wheel", (event) => {
  if (!scene?.width) return;
  event.preventDefault();
  zoom(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.002)), ...placeOf(event));
}, {passive: false});

const ARROWS = {ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1]};
stage.addEventListener("keydown", (event) => {
  if (!scene?.width || event.ctrlKey || event.metaKey || event.altKey) return;
  const arrow = ARROWS[event.key], key = event.key.toLowerCase(), at = scene.at, usable = at?.by_score && !at.error;
  if (arrow && draft) {
    const step = Math.max(1, Math.round(8 / view.scale));
    for (const axis of [0, 1]) {
      if (!event.shiftKey) draft[axis] += arrow[axis] * step;
      draft[axis + 2] += arrow[axis] * step;
    }
    drawScene();
  } else if (arrow) move(view.x + arrow[0] * 60 / view.scale, view.y + arrow[1] * 60 / view.scale);
  else if (key === "enter" && draft) finishDrawing();
  else if (key === "escape" && drawing) { stopDrawing(); event.stopPropagation(); }
  else if (key === "escape" && !current && at) choose(null);
  else if (key === "+" || key === "=") zoom(1.4);
  else if (key === "-") zoom(1 / 1.4);
  else if (key === "0") wholeView();
  else if (key === "n") stepTarget(1);
  else if (key === "p") stepTarget(-1);
  else if (key === "b") { if (drawing) stopDrawing(); else startDrawing(true); }
  else if (key === "enter" && usable) showMore(at);
  else if (key === " " && usable) select(at);
  else if (key === "w" && usable) markWrong(selected().length ? selected() : [at]);
  else if (key === "g" && usable) { if (!selected().length) select(at); $("group").focus(); }
  else return;
  event.preventDefault();
});
new ResizeObserver(() => { if (view.whole) wholeView(); else drawScene(); }).observe(stage);

// ---- controls of scenes ----

const lowest = () => run.detector.threshold / 2;  // targets from here on are asked for, so the slider can be lowered

function sayLeast() {
  if (!run.detector) return;
  const own = least === run.detector.threshold;
  const text = `${number(least)}${own ? ", the detector's" : ""}`;
  $("least-text").textContent = text;
  $("least").setAttribute("aria-valuetext", text);
}

function describeKind() {
  const kind = document.querySelector("[name=kind]:checked").value, formats = "PNG, JPEG, TIFF, GIF, BMP, WebP, JPEG 2000 or .npy";
  const of = run.detector && kind === "scenes" ? run.detector.dtype : run.dtype;
  $("kind-name").textContent = kind;
  const more = kind === "chips" ? "" : ` At most ${(run.pixels / 1e6).toFixed(1)} million pixels. ${run.detector ? `The detector ${run.detector.run} finds the targets` : "There is no detector: you draw the boxes"}.`;
  $("limits").textContent = `or paste an image: ${formats}, ${of}.${more}`;
}

function beginScenes() {
  for (const one of document.querySelectorAll("[name=kind]")) one.disabled = false;  // the text beside them needs the run
  $("least-field").hidden = !run.detector;
  if (!run.detector) return;
  least = run.detector.threshold;
  $("least").value = (least - lowest()) / (1 - lowest());
  sayLeast();
  document.querySelector("[name=kind][value=scenes]").checked = true;
  describeKind();
}

$("least").addEventListener("input", () => {
  least = lowest() + Number($("least").value) * (1 - lowest());
  sayLeast();
  redraw();
});
for (const one of document.querySelectorAll("[name=kind]")) one.addEventListener("change", describeKind);
$("scenes").addEventListener("change", () => show(scenes[$("scenes").value]));
$("zoom-in").addEventListener("click", () => zoom(1.4));
$("zoom-out").addEventListener("click", () => zoom(1 / 1.4));
$("fit").addEventListener("click", wholeView);
$("draw").addEventListener("click", (event) => { if (drawing) stopDrawing(); else startDrawing(event.detail === 0); });

