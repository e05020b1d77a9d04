const UNKNOWN = -1;

// A score is a plain number, the logit or logarithm of a probability, or a negative distance. γ is
// the threshold in the readers' unit: a probability or a distance.
const logit = (p) => Math.log(p / (1 - p));
const sigmoid = (x) => 1 / (1 + Math.exp(-x));
const isProbability = (score) => score.scale === "log" || score.scale === "logit";
const THRESHOLDS = { plain: (g) => g, log: Math.log, logit, distance: (g) => -g };
const GAMMAS = { plain: (t) => t, log: Math.exp, logit: sigmoid, distance: (t) => -t };
const toPlace = (score, gamma) => (isProbability(score) ? logit(gamma) : gamma);
const fromPlace = (score, place) => (isProbability(score) ? sigmoid(place) : place);

function rounded(score, gamma) {
  if (!isProbability(score)) return Number(gamma.toPrecision(4));
  const rest = Math.min(gamma, 1 - gamma);
  return rest > 0 ? Number(gamma.toFixed(Math.min(16, 2 - Math.floor(Math.log10(rest))))) : gamma;
}

/** Formats γ; a probability close to 1 as 1 minus the rest. */
function shown(score, gamma) {
  const rest = 1 - gamma;
  const close = isProbability(score) && rest > 0 && rest < 1e-4;
  return close ? `1 − ${rest.toExponential(1)}` : String(rounded(score, gamma));
}

/** Computes the confusion matrix: true classes by decisions, "unknown" last. */
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

function explore(panel) {
  const run = data.runs[Number(panel.dataset.run)];
  const find = (selector) => panel.querySelector(selector);
  const [chooser, field, slider] = [".score", ".gamma", ".slider"].map(find);
  const cells = [...panel.querySelectorAll(".matrix td")];
  let score, threshold;

  function choose() {
    score = run.scores[chooser.value];
    for (const figure of panel.querySelectorAll(".histogram"))
      figure.hidden = figure.dataset.score !== chooser.value;
    const bounds = {
      plain: { min: "", max: "", step: 0.1 },
      distance: { min: 0, max: "", step: 0.01 },
    };
    Object.assign(slider, { min: score.low, max: score.high, step: (score.high - score.low) / 400 });
    Object.assign(field, bounds[score.scale] ?? { min: 0, max: 1, step: 0.01 });
    find(".named").textContent = score.scale === "distance" ? "Largest distance" : "γ";
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

  /** Updates the panel to γ; a recorded threshold is used exactly, without conversion from γ. */
  function move(gamma, recorded = null, from = null) {
    threshold = recorded ?? THRESHOLDS[score.scale](gamma);
    const place = Math.min(Math.max(toPlace(score, gamma), score.low), score.high);
    if (from !== field) field.value = rounded(score, gamma);
    if (from !== slider) slider.value = place;
    const named = score.scale === "distance" ? "distance" : "γ";
    slider.setAttribute("aria-valuetext", `${named} ${rounded(score, gamma)}`);
    mark((place - score.low) / (score.high - score.low));
    sheets(show(counted(run, score, threshold)));
    decide(gamma);
  }

  /** Shows the rule of rejection, and the command that predicts at γ. */
  function decide(gamma) {
    const value = shown(score, gamma);
    find(".rule").textContent =
      score.scale === "distance"
        ? `Images further away than ${value} are rejected as unknown.`
        : `Images that score below ${value} are rejected as unknown.`;
    const { flags, units, reason } = score.command;
    const number = { gamma, distance: -threshold, score: threshold }[units];
    const text = String(number).replace("Infinity", "inf").replace(/^-0$/, "0");
    find(".command code").textContent = reason ? "" : `${flags}${text} ${run.takes}`;
    find(".reason").textContent = reason;
    find(".copy").hidden = Boolean(reason) || !navigator.clipboard;
    find(".copy").textContent = "Copy";
  }

  function mark(share) {
    const histogram = panel.querySelector(".histogram:not([hidden])");
    const across = data.left + share * data.width;
    const far = score.scale === "distance"; // large values are rejected, not small ones
    const rejecting = histogram.querySelector(".rejecting");
    rejecting.setAttribute("x", far ? across : data.left);
    rejecting.setAttribute("width", (far ? 1 - share : share) * data.width);
    histogram.querySelector(".marker").setAttribute("transform", `translate(${across} 0)`);
  }

  /** Shows the figures of a confusion matrix; returns the number of mistakes of each kind. */
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
    const box = find(".confusions");
    if (box) large.get(box)(counts);
    else counts.flat().forEach((count, place) => {
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
    const { name, seen } = run.thumbnails[row];
    const nearest = run.classes[(score.predicted ?? run.predicted)[row]];
    const verdict = kind === "rejected" ? `${name}, rejected` : `${name}, taken for ${nearest}`;
    const where = shown(score, GAMMAS[score.scale](score.values[row]));
    const lines = [verdict, where].concat(seen || []);
    return element("figure", {}, [
      chip(panel.dataset.run, row),
      element("figcaption", {}, lines.map((line) => element("span", { textContent: line }))),
    ]);
  }

  chooser.addEventListener("change", choose);
  find(".copy").addEventListener("click", async () => {
    await navigator.clipboard.writeText(find(".command code").textContent);
    find(".copy").textContent = "Copied";
  });
  slider.addEventListener("input", () => {
    const gamma = rounded(score, fromPlace(score, slider.valueAsNumber));
    move(gamma, null, slider);
  });
  field.addEventListener("input", () => {
    const gamma = field.valueAsNumber;
    const { rangeUnderflow, rangeOverflow } = field.validity;
    const fits = Number.isFinite(gamma) && !rangeUnderflow && !rangeOverflow;
    field.setAttribute("aria-invalid", String(!fits));
    if (fits) move(gamma, null, field);
  });
  choose();
}

for (const panel of document.querySelectorAll(".explorer")) explore(panel);

for (const box of document.querySelectorAll(".switches input")) {
  const show = () => {
    for (const drawn of document.querySelectorAll("#curves [data-group]"))
      if (drawn.dataset.group === box.value) drawn.toggleAttribute("hidden", !box.checked);
  };
  box.addEventListener("change", show);
  show();
}
