"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const UNKNOWN = -1;

  // A score is a plain number, or a probability recorded as its logit or its logarithm.
  const logit = (p) => Math.log(p / (1 - p));
  const toThreshold = (score, gamma) =>
    score.scale === "plain" ? gamma : score.scale === "log" ? Math.log(gamma) : logit(gamma);
  const toPlace = (score, gamma) => (score.scale === "plain" ? gamma : logit(gamma));
  const fromPlace = (score, place) =>
    score.scale === "plain" ? place : 1 / (1 + Math.exp(-place));

  function rounded(score, gamma) {
    if (score.scale === "plain") return Number(gamma.toPrecision(4));
    const rest = Math.min(gamma, 1 - gamma);
    return rest > 0 ? Number(gamma.toFixed(Math.min(16, 2 - Math.floor(Math.log10(rest))))) : gamma;
  }

  /** As text: of a probability next to 1, what is missing. */
  function shown(score, gamma) {
    const rest = 1 - gamma;
    const close = score.scale !== "plain" && rest > 0 && rest < 1e-4;
    return close ? `1 − ${rest.toExponential(1)}` : String(rounded(score, gamma));
  }

  function decoded(score) {
    const bytes = Uint8Array.from(atob(score.values), (letter) => letter.charCodeAt(0));
    return score.single ? new Float32Array(bytes.buffer) : new Float64Array(bytes.buffer);
  }

  const percent = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(1)} %` : "–");

  /** Counts of true class by decision, "unknown" last. */
  function counted(run, score, threshold) {
    const predicted = score.predicted ?? run.predicted;
    const size = run.classes.length + 1;
    const counts = Array.from({ length: size }, () => new Array(size).fill(0));
    run.labels.forEach((label, row) => {
      const decision = score.values[row] >= threshold ? predicted[row] : UNKNOWN;
      counts[label < 0 ? size - 1 : label][decision < 0 ? size - 1 : decision] += 1;
    });
    return counts;
  }

  function element(name, properties, children = []) {
    const made = Object.assign(document.createElement(name), properties);
    made.append(...children);
    return made;
  }

  function explore(panel) {
    const run = data.runs[Number(panel.dataset.run)];
    const find = (selector) => panel.querySelector(selector);
    const [chooser, field, slider] = [".score", ".gamma", ".slider"].map(find);
    const cells = [...panel.querySelectorAll(".matrix td")];
    for (const score of Object.values(run.scores)) score.values = decoded(score);
    let score, threshold;

    function choose() {
      score = run.scores[chooser.value];
      for (const figure of panel.querySelectorAll(".histogram"))
        figure.hidden = figure.dataset.score !== chooser.value;
      const plain = score.scale === "plain";
      Object.assign(slider, { min: score.low, max: score.high, step: (score.high - score.low) / 400 });
      Object.assign(field, { min: plain ? "" : 0, max: plain ? "" : 1, step: plain ? 0.1 : 0.01 });
      find(".thresholds").replaceChildren(
        ...score.thresholds.map((recorded) =>
          element("button", {
            type: "button",
            textContent: `${shown(score, recorded.gamma)} (${recorded.text})`,
            onclick: () => move(recorded.gamma, recorded.threshold),
          }),
        ),
      );
      move(score.thresholds[0].gamma, score.thresholds[0].threshold);
    }

    /** Shows everything at γ; a recorded threshold is used as it is, not by way of its γ. */
    function move(gamma, recorded = null, from = null) {
      threshold = recorded ?? toThreshold(score, gamma);
      const place = Math.min(Math.max(toPlace(score, gamma), score.low), score.high);
      if (from !== field) field.value = rounded(score, gamma);
      if (from !== slider) slider.value = place;
      slider.setAttribute("aria-valuetext", `γ ${rounded(score, gamma)}`);
      mark((place - score.low) / (score.high - score.low));
      sheets(show(counted(run, score, threshold)));
    }

    function mark(share) {
      const histogram = panel.querySelector(".histogram:not([hidden])");
      histogram.querySelector(".rejecting").setAttribute("width", share * data.width);
      const across = data.left + share * data.width;
      histogram.querySelector(".marker").setAttribute("transform", `translate(${across} 0)`);
    }

    /** Returns how many mistakes of each kind there are. */
    function show(counts) {
      const last = counts.length - 1;
      const sum = (row) => row.reduce((total, count) => total + count, 0);
      const known = counts.slice(0, last);
      const right = sum(known.map((row, label) => row[label]));
      const unknown = sum(counts[last]);
      const total = sum(known.map(sum));
      const rejected = sum(known.map((row) => row[last]));
      const accepted = unknown - counts[last][last];
      const write = (name, text) => (find(`output.${name}`).textContent = text);
      write("accuracy", unknown ? percent(right + counts[last][last], total + unknown) : "–");
      write("alarms", percent(accepted, unknown));
      write("rejected", percent(rejected, total));
      write("right", percent(right, total));
      counts.flat().forEach((count, place) => {
        const all = sum(counts[Math.floor(place / counts.length)]);
        cells[place].textContent = count;
        cells[place].classList.toggle("none", !count);
        cells[place].style.setProperty("--share", all ? count / all : 0);
      });
      return { misclassified: total - right - rejected, accepted, rejected };
    }

    function sheets(mistakes) {
      for (const sheet of panel.querySelectorAll(".sheet")) {
        const kind = sheet.dataset.kind;
        const mistaken = run.mistakes[chooser.value][kind].filter(
          (row) => score.values[row] >= threshold === (kind !== "rejected"),
        );
        find(`.count[data-kind="${kind}"]`).textContent = `${mistaken.length} of ${mistakes[kind]}`;
        sheet.replaceChildren(...mistaken.map((row) => picture(row, kind)));
      }
    }

    function picture(row, kind) {
      const { name, seen, source } = run.thumbnails[row];
      const nearest = run.classes[(score.predicted ?? run.predicted)[row]];
      const verdict = kind === "rejected" ? `${name}, rejected` : `${name}, taken for ${nearest}`;
      const where = score.scale === "plain" ? score.values[row] : placeOf(score.values[row]);
      const lines = [verdict, shown(score, where)].concat(seen || []);
      return element("figure", {}, [
        element("img", { src: source, alt: "", width: 64, height: 64 }),
        element("figcaption", {}, lines.map((line) => element("span", { textContent: line }))),
      ]);
    }

    const placeOf = (value) =>
      score.scale === "log" ? Math.exp(value) : 1 / (1 + Math.exp(-value));

    chooser.addEventListener("change", choose);
    slider.addEventListener("input", () => {
      const gamma = rounded(score, fromPlace(score, slider.valueAsNumber));
      move(gamma, null, slider);
    });
    field.addEventListener("input", () => {
      const gamma = field.valueAsNumber;
      const fits = Number.isFinite(gamma) && (score.scale === "plain" || (gamma >= 0 && gamma <= 1));
      field.setAttribute("aria-invalid", String(!fits));
      if (fits) move(gamma, null, field);
    });
    choose();
  }

  for (const panel of document.querySelectorAll(".explorer")) explore(panel);

  for (const box of document.querySelectorAll(".switches input"))
    box.addEventListener("change", () => {
      for (const drawn of document.querySelectorAll("#curves [data-group]"))
        if (drawn.dataset.group === box.value) drawn.toggleAttribute("hidden", !box.checked);
    });
})();
