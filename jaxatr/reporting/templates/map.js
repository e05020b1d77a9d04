/** Shows the chip of an embedding map under the pointer or the keyboard focus; highlights classes. */
function guide(map) {
  const number = Number(map.dataset.run);
  const run = data.runs[number];
  const [svg, card, ring] = ["svg", ".tip", ".ring"].map((selector) => map.querySelector(selector));
  const groups = [...map.querySelectorAll(".points > g")];
  const at = (point) => ({ x: Number(point.getAttribute("x")), y: Number(point.getAttribute("y")) });
  const points = groups.map((group) =>
    [...group.querySelectorAll("use")].sort((a, b) => at(a).x - at(b).x),
  );
  const all = points.flat();
  const focused = () => all.find((point) => point === document.activeElement) ?? null;

  function words(point) {
    const row = point.dataset.row;
    const { name, seen } = run.thumbnails[row];
    const nearest = run.classes[run.predicted[row]];
    const distance = Number(-run.scores.nearest.values[row]).toPrecision(3);
    const kind = `${point.parentNode.dataset.kind} class`;
    return [name, kind, `nearest training chip: ${nearest}, distance ${distance}`].concat(seen || []);
  }

  function show(point) {
    card.hidden = ring.toggleAttribute("hidden", !point);
    if (!point) return;
    const { x, y } = at(point);
    ring.setAttribute("cx", x);
    ring.setAttribute("cy", y);
    const lines = words(point).map((text) => element("span", { textContent: text }));
    card.replaceChildren(chip(number, point.dataset.row), element("span", {}, lines));
    place(x, y);
  }

  /** Places the card beside a point, within the map, on the side with more room. */
  function place(x, y) {
    const { a, e, f } = svg.getScreenCTM();
    const frame = map.getBoundingClientRect();
    const [left, top] = [x * a + e - frame.left, y * a + f - frame.top];
    const right = Math.max(0, frame.width - card.offsetWidth);
    const above = top > svg.clientHeight / 2;
    card.style.left = `${Math.min(Math.max(0, left - card.offsetWidth / 2), right)}px`;
    card.style.top = `${above ? top - card.offsetHeight - 14 : top + 14}px`;
  }

  function under(event) {
    const { a, e, f } = svg.getScreenCTM();
    const reach = event.pointerType === "mouse" ? 14 : 28;
    let [nearest, least] = [null, reach / a];
    for (const point of all) {
      if (point.parentNode.classList.contains("faint")) continue;
      const { x, y } = at(point);
      const apart = Math.hypot((event.clientX - e) / a - x, (event.clientY - f) / a - y);
      if (apart < least) [nearest, least] = [point, apart];
    }
    return nearest;
  }

  /** Makes a point the one that the Tab key reaches. */
  function enter(point) {
    for (const one of all) one.removeAttribute("tabindex");
    point.setAttribute("tabindex", "0");
  }

  function step(from, key) {
    const across = points.findIndex((group) => group.includes(from));
    const along = points[across].indexOf(from);
    const last = points[across].length - 1;
    if (key === "ArrowLeft") return points[across][Math.max(along - 1, 0)];
    if (key === "ArrowRight") return points[across][Math.min(along + 1, last)];
    if (key === "Home") return points[across][0];
    if (key === "End") return points[across][last];
    const next = { ArrowUp: across - 1, ArrowDown: across + 1 }[key];
    if (next === undefined) return null;
    const { x, y } = at(from);
    const far = (one) => Math.hypot(at(one).x - x, at(one).y - y);
    const group = points[Math.min(Math.max(next, 0), points.length - 1)];
    return next === across ? from : group.reduce((a, b) => (far(b) < far(a) ? b : a));
  }

  const follow = (event) => show(under(event) ?? focused());
  svg.addEventListener("pointermove", follow);
  svg.addEventListener("pointerdown", follow);
  svg.addEventListener("mousedown", (event) => event.preventDefault()); // the focus stays
  svg.addEventListener("pointerleave", (event) => {
    if (event.pointerType === "mouse") show(focused());
  });
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") show(null);
  });
  svg.querySelector(".points").addEventListener("keydown", (event) => {
    const next = step(event.target, event.key);
    if (!next) return;
    event.preventDefault();
    enter(next);
    next.focus();
  });
  // Not on elements of the drawing: Chromium would make a listening element a stop of the Tab key.
  map.addEventListener("focusin", () => show(focused()));
  map.addEventListener("focusout", () => show(null));
  for (const one of all) one.setAttribute("aria-label", words(one).join(", "));
  enter(points[0][0]);

  const buttons = [...map.querySelectorAll(".legend button")];
  for (const button of buttons)
    button.addEventListener("click", () => {
      const pressed = (one) => one.getAttribute("aria-pressed") === "true";
      button.setAttribute("aria-pressed", String(!pressed(button)));
      const chosen = buttons.map(pressed);
      groups.forEach((group, place) =>
        group.classList.toggle("faint", chosen.includes(true) && !chosen[place]),
      );
    });
}

for (const map of document.querySelectorAll(".map")) guide(map);
