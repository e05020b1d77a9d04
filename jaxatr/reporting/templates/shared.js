const data = JSON.parse(document.getElementById("data").textContent);

function decoded(score) {
  const bytes = Uint8Array.from(atob(score.values), (letter) => letter.charCodeAt(0));
  return score.single ? new Float32Array(bytes.buffer) : new Float64Array(bytes.buffer);
}

for (const run of data.runs)
  for (const score of Object.values(run.scores)) score.values = decoded(score);

function element(name, properties, children = []) {
  const made = Object.assign(document.createElement(name), properties);
  made.append(...children);
  return made;
}

const percent = (part, whole) => (whole ? `${((100 * part) / whole).toFixed(1)} %` : "–");

/** Makes the picture of a test example: a part of the sprite of its run. */
function chip(number, row) {
  const made = element("span", { className: `chip of-${number}` });
  made.style.backgroundPosition = data.runs[number].thumbnails[row].at;
  return made;
}
