const LISTED = { all: 15, found: 60 };

/** Runs a large confusion matrix: draws the counts, lists the worst confusions, and finds classes. */
function confusions(box) {
  const names = JSON.parse(box.dataset.names);
  const find = (selector) => box.querySelector(selector);
  const [search, svg, cells, found] = ["input", "svg", ".cells", ".found"].map(find);
  let counts = JSON.parse(box.dataset.counts);
  let totals = [];

  const share = (row, column) => (totals[row] ? counts[row][column] / totals[row] : 0);

  function rectangle(properties) {
    const made = document.createElementNS(svg.namespaceURI, "rect");
    for (const [name, value] of Object.entries(properties)) made.setAttribute(name, value);
    return made;
  }

  function each(visit) {
    counts.forEach((row, label) => row.forEach((count, place) => count && visit(label, place, count)));
  }

  function show(shown) {
    counts = shown;
    totals = counts.map((row) => row.reduce((total, count) => total + count, 0));
    const drawn = [];
    each((y, x) => {
      const cell = rectangle({ class: x === y ? "right" : "wrong", x, y, width: 1, height: 1 });
      cell.style.setProperty("--share", share(y, x));
      drawn.push(cell);
    });
    cells.replaceChildren(...drawn);
    list();
  }

  /** Returns the classes whose names equal or else contain the search text; null without a text. */
  function searched() {
    const text = search.value.trim().toLowerCase();
    if (!text) return null;
    const places = names.map((_, place) => place);
    const exact = places.filter((place) => names[place].toLowerCase() === text);
    if (exact.length) return exact;
    return places.filter((place) => names[place].toLowerCase().includes(text));
  }

  function list() {
    const chosen = searched();
    const wrong = [];
    each((label, place, count) => {
      if (label !== place && (!chosen || chosen.includes(label) || chosen.includes(place)))
        wrong.push([label, place, count]);
    });
    wrong.sort((a, b) => b[2] - a[2] || share(b[0], b[1]) - share(a[0], a[1]));
    const rows = wrong.slice(0, chosen ? LISTED.found : LISTED.all).map(([label, place, count]) => {
      const texts = [names[label], names[place], count, percent(count, totals[label])];
      return element("tr", {}, texts.map((text) => element("td", { textContent: text })));
    });
    find("tbody").replaceChildren(...rows);
    find(".summary").textContent = summary(chosen, wrong.length);
    const size = names.length;
    found.replaceChildren(
      ...(chosen ?? []).flatMap((place) => [
        rectangle({ x: 0, y: place, width: size, height: 1 }),
        rectangle({ x: place, y: 0, width: 1, height: size }),
      ]),
    );
  }

  function summary(chosen, pairs) {
    if (chosen && !chosen.length) return "No class name matches.";
    const of = (place) =>
      `${names[place]}: ${counts[place][place]} of ${totals[place]} right (${percent(counts[place][place], totals[place])})`;
    const right = chosen && chosen.length <= 3 ? `${chosen.map(of).join(", ")}. ` : "";
    return `${right}${pairs || "No"} pair${pairs === 1 ? "" : "s"} of classes ${pairs === 1 ? "is" : "are"} confused.`;
  }

  svg.addEventListener("pointermove", (event) => {
    const { left, top, width, height } = svg.getBoundingClientRect();
    const limit = (value) => Math.min(Math.max(Math.floor(value), 0), names.length - 1);
    const column = limit(((event.clientX - left) / width) * names.length);
    const row = limit(((event.clientY - top) / height) * names.length);
    const what = row === column ? "right" : `taken for ${names[column]}`;
    find(".pointed").textContent =
      `${names[row]}, ${what}: ${counts[row][column]} of ${totals[row]} (${percent(counts[row][column], totals[row])})`;
  });
  search.addEventListener("input", list);
  show(counts);
  return show;
}

const large = new Map([...document.querySelectorAll(".confusions")].map((box) => [box, confusions(box)]));
