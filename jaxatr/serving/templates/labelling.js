// The page on which chips are labelled, when the console serves it.
const data = await (async () => {
  const $ = (id) => document.getElementById(id);
  {% include "ask.js" %}
  const answer = await ask(`/api/labels${location.search}`);
  if (!answer.ok) {
    $("problem").textContent = `The chips cannot be read: ${await detail(answer)}`;
    $("problem").hidden = false;
    return null;
  }
  const found = await answer.json();

  const look = new CSSStyleSheet();
  look.replaceSync(`.chip.of-0 { aspect-ratio: ${found.sprite.ratio};
    background: url(${found.sprite.source}) 0 0 / ${found.sprite.size}; }`);
  document.adoptedStyleSheets = [look];

  const last = Math.min(found.start + found.each - 1, found.total);
  $("title").textContent = found.title;
  $("part").textContent = `Chips ${found.start} to ${last} of ${found.total}`;
  for (const [id, start] of [["before", found.start - found.each], ["after", last + 1]]) {
    if (start < 1 || start > found.total) continue;
    $(id).href = `/label?start=${start}`;
    $(id).textContent = `Chips ${start} to ${Math.min(start + found.each - 1, found.total)}`;
    $(id).hidden = false;
  }
  if (found.left_out.length) {
    const [first] = found.left_out, more = found.left_out.length - 1;
    $("problem").textContent = `Not shown, because it cannot be read: ${first.name} (${first.reason})` +
      (more ? `, and ${more} more.` : ".");
    $("problem").hidden = false;
  }
  return Object.assign(found, {ask, detail});
})();

// One label after the other, so that the last one given to a chip is the one that is kept.
let sending = Promise.resolve(), waiting = 0, labelled = data?.labelled;
const server = {
  give(chip, label, undo) {
    waiting += 1;
    sending = sending.then(async () => {
      let failed = "";
      try {
        const answer = await data.ask("/api/labels", {
          method: "POST",
          headers: {"content-type": "application/json"},
          body: JSON.stringify({path: chip.file, label}),
        });
        if (answer.ok) labelled = (await answer.json()).count;
        else failed = `${chip.name} is not saved: ${await data.detail(answer)}`;
      } catch (error) {
        failed = `${chip.name} is not saved: ${error.message}`;
      }
      waiting -= 1;
      document.getElementById("done").textContent = server.said();
      if (failed) {
        document.getElementById("problem").textContent = failed;
        document.getElementById("problem").hidden = false;
        undo();
      }
    });
  },
  open: () => waiting > 0,
  said: () => waiting ? `saving ${waiting}` : `${labelled} of ${data.total} labelled, saved`,
  async table() {
    await sending;
    const answer = await data.ask("/api/labels.csv");
    const source = URL.createObjectURL(await answer.blob());
    Object.assign(document.createElement("a"), {href: source, download: "labels.csv"}).click();
    setTimeout(() => URL.revokeObjectURL(source), 60000);
  },
};
if (data) {
{% include "label.js" %}
}
