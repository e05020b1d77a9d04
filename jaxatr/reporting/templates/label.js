// Of the console: server.give(chip, label, undo) saves a label, server.table() downloads all of them.
const $ = (name) => document.getElementById(name);
const other = data.other;
const key = `jaxatr-labels-${data.key}`;
const classes = [...data.classes];
let labels = data.given ?? data.chips.map(() => "");   // "": none yet
let place = 0;
let saved = true;

// A browser may keep nothing, such as one that forbids storage.
if (!server) try {
  const kept = JSON.parse(localStorage.getItem(key) || "[]");
  if (Array.isArray(kept) && kept.length === labels.length) labels = kept.map(String);
  saved = !labels.some(Boolean);
} catch { /* the labels begin empty */ }
for (const label of labels) add(label);
if (server) place = Math.max(0, labels.indexOf(""));

function add(label) {
  if (label && label !== other.value && !classes.includes(label)) classes.push(label);
}

function element(name, properties, children = []) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

function answers() {
  const buttons = classes.map((name, number) =>
    answer(name, name, number < 9 ? String(number + 1) : ""));
  $("answers").replaceChildren(
    ...buttons, answer(other.value, other.name, other.key.toUpperCase()));
}

function answer(value, name, hint) {
  const made = element("button", {type: "button", onclick: () => label(value)}, [name]);
  if (hint) made.append(" ", element("kbd", {textContent: hint}));
  made.dataset.value = value;
  return made;
}

function label(name) {
  if (!data.chips.length) return;
  const at = place, before = labels[at];
  labels[at] = name;
  if (server) server.give(data.chips[at], given(name), () => { labels[at] = before; show(); });
  else saved = false;
  if (!server) try { localStorage.setItem(key, JSON.stringify(labels)); } catch { /* until the page is closed */ }
  if (name) move(1);
  show();
}

/** Returns the table's cell of a label; null for none. */
function given(value) {
  return value === other.value ? other.cell : value || null;
}

function shown(value) {
  return value === other.value ? other.name : value;
}

function move(step) {
  place = Math.max(0, Math.min(data.chips.length - 1, place + step));
}

function show() {
  const chip = data.chips[place];
  if (!chip) return;
  $("rank").textContent = `${place + 1} of ${data.chips.length}`;
  $("chip").style.backgroundPosition = chip.at;
  $("chip").setAttribute("aria-label", chip.name);
  $("file").textContent = chip.name;
  $("why").textContent = chip.why;
  $("verdict").textContent = chip.verdict;
  $("said").textContent = labels[place] ? `Your label: ${shown(labels[place])}.` : "";
  for (const button of $("answers").children)
    button.setAttribute("aria-pressed", String(button.dataset.value === labels[place]));
  const count = labels.filter(Boolean).length;
  $("done").textContent = server ? server.said() :
    `${count} of ${labels.length} labelled${saved ? "" : ", not saved"}`;
  [...$("sheet").children].forEach((one, number) => {
    one.classList.toggle("current", number === place);
    one.lastChild.textContent = shown(labels[number]) || "–";
  });
}

/** Quotes a cell of CSV; text that a spreadsheet would take for a formula gets an apostrophe. */
function cell(text) {
  const safe = /^'*[=+\-@\t\r\n]/.test(text) ? `'${text}` : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

function table() {
  const rows = data.chips.flatMap((chip, number) =>
    labels[number] ? [`${cell(chip.file)},${cell(given(labels[number]))}\n`] : []);
  return ["path,label\n", ...rows].join("");
}

function save() {
  if (server) return server.table();
  const url = URL.createObjectURL(new Blob([table()], {type: "text/csv"}));
  element("a", {href: url, download: "labels.csv"}).click();
  setTimeout(() => URL.revokeObjectURL(url), 60000);
  saved = true;
  show();
}

$("sheet").append(...data.chips.map((chip, number) => {
  const picture = element("span", {className: "chip of-0"});
  picture.style.backgroundPosition = chip.at;
  const named = element("span", {className: "label"});
  const go = () => { place = number; show(); $("desk").scrollIntoView({block: "nearest"}); };
  return element("button", {type: "button", title: chip.name, onclick: go}, [picture, named]);
}));
$("other").addEventListener("submit", (event) => {
  event.preventDefault();
  const name = $("name").value.normalize("NFC").trim();
  if (!name) return;
  $("name").value = "";
  $("name").blur();
  add(name);
  answers();
  label(name);
});
$("back").onclick = () => { move(-1); show(); };
$("skip").onclick = () => { move(1); show(); };
$("save").onclick = save;
document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.target === $("name")) {
    if (event.key === "Escape") $("name").blur();
    return;
  }
  const pressed = event.key.toLowerCase();
  const number = /^[1-9]$/.test(pressed) ? Number(pressed) : 0;
  if (number && number <= classes.length) label(classes[number - 1]);
  else if (pressed === other.key) label(other.value);
  else if (pressed === "n" && !$("other").hidden) $("name").focus();
  else if (pressed === "s" || pressed === "arrowright") { move(1); show(); }
  else if (pressed === "arrowleft") { move(-1); show(); }
  else if (pressed === "backspace" || pressed === "delete") label("");
  else return;
  event.preventDefault();
});
addEventListener("beforeunload", (event) => {
  if (server ? server.open() : !saved) event.preventDefault();
});
answers();
show();
