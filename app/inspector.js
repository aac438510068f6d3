// The inspector in the browser, for what gradio's components can't do: tokens and tree nodes that can be chosen, arrow
// keys, marks that follow the shown step, zoom, saving figures, and the replay of the race. gradio runs this file once
// per page as the `js_on_load` of a gr.HTML, which gives `trigger` (calls Python) and `props`. All text is set as text.

const find = (selector, within = document) => within.querySelector(selector);
const all = (selector, within = document) => [...within.querySelectorAll(selector)];
const plotOf = (id) => find(`#${CSS.escape(id)} .js-plotly-plot`);

// ---- choosing: a token opens its step, a node explains itself, arrow keys move ------------------------------------

document.addEventListener("click", (event) => {
  const token = event.target.closest("#strip [data-step]");
  if (token) trigger("pick", { lane: token.dataset.lane, step: Number(token.dataset.step) });
  const row = event.target.closest("#nodes [data-row]");
  if (row) trigger("choose", { node: Number(row.dataset.row) });
  const zoom = event.target.closest("[data-zoom]");
  if (zoom) zoomTree(plotOf(zoom.dataset.figure), zoom.dataset.zoom);
  const save = event.target.closest("[data-save]");
  if (save) saveFigure(save.dataset.figure, save.dataset.save);
  if (event.target.closest("[data-race-play]")) race.toggle(event.target.closest(".race"));
});

document.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && event.target.matches("#nodes [data-row]")) event.target.click();
  const button = { ArrowLeft: "#previous", ArrowRight: "#next" }[event.key];
  if (!button || event.altKey || event.ctrlKey || event.metaKey) return;
  const steps = event.target.closest("#steps-area");
  if (!steps || event.target.closest("input, textarea, select, [role=listbox], [role=tablist], #nodes")) return;
  event.preventDefault();
  find(button).click();
});

// ---- following what Python shows ----------------------------------------------------------------------------------

let asked = false;
new MutationObserver(() => {
  if (!asked) requestAnimationFrame(() => { asked = false; follow(); });
  asked = true;
}).observe(document.body, { childList: true, subtree: true, attributeFilter: ["data-step", "data-node", "data-race"] });

function follow() {
  const facts = find("#facts [data-step]");
  if (facts) markStep(facts.dataset.lane, facts.dataset.step);
  all(".tree .js-plotly-plot").filter((tree) => tree.data && !tree.dataset.known).forEach(meetTree);
  const tree = plotOf("tree");
  const why = find("#why [data-node]");
  if (tree?.data && why) markNode(tree, Number(why.dataset.node));
  all(".race[data-race]").forEach((board) => race.meet(board));
}

/** The tokens of the shown step stand out in the strip; its first token is the one that Tab reaches. */
function markStep(lane, step) {
  const strip = find("#strip .strip");
  if (!strip) return;
  const own = all(`[data-lane="${CSS.escape(lane)}"][data-step="${CSS.escape(step)}"]`, strip);
  const before = all(".now", strip).filter((token) => !own.includes(token));
  before.forEach((token) => { token.classList.remove("now"); token.removeAttribute("aria-current"); token.tabIndex = -1; });
  own.forEach((token) => { token.classList.add("now"); token.setAttribute("aria-current", "step"); });
  if (!own.length) return;
  own[0].tabIndex = 0;
  if (before.includes(document.activeElement)) own[0].focus({ preventScroll: true });
  const box = own[0].getBoundingClientRect(), frame = strip.getBoundingClientRect();
  if (box.top < frame.top || box.bottom > frame.bottom) strip.scrollTop += box.top - frame.top - frame.height / 3;
}

function meetTree(tree) {
  tree.dataset.known = "1";
  if (tree === plotOf("tree")) tree.on("plotly_click", (event) => {
    const node = event.points[0].customdata;
    if (Number.isInteger(node)) trigger("choose", { node });
  });
  zoomTree(tree, "fit");
}

/** The halo stands behind the node that is explained. */
function markNode(tree, node) {
  const at = (name) => tree.data.findIndex((trace) => trace.name === name);
  const halo = at("halo"), nodes = tree.data[at("nodes")], bonus = tree.data[at("bonus")];
  const [from, place] = node < nodes.x.length ? [nodes, node] : [bonus, 0];
  if (!from) return;
  const [x, y] = [from.x[place], from.y[place]];
  if (tree.data[halo].x[0] !== x || tree.data[halo].y[0] !== y) Plotly.restyle(tree, { x: [[x]], y: [[y]] }, [halo]);
}

// ---- zoom and saving ----------------------------------------------------------------------------------------------

addEventListener("resize", () => all(".tree .js-plotly-plot").forEach((tree) => zoomTree(tree, "keep")));

/** "in" and "out" by a quarter; "fit" is the page's width, but never so narrow that texts would overlap. */
function zoomTree(tree, by) {
  if (!tree?.data) return;
  tree.base ??= {
    height: tree.layout.height,
    sizes: tree.data.map((trace) => [trace.marker?.size ?? 12, trace.textfont?.size ?? 12]),
  };
  const scale = { in: 1.25, out: 0.8, keep: 1, fit: 0 }[by];
  tree.zoom = scale ? Math.min(4, Math.max(0.4, (tree.zoom ?? 1) * scale)) : 1;
  const room = tree.closest(".tree").clientWidth;
  const width = Math.max(room, tree.layout.meta.width) * tree.zoom;
  tree.style.width = `${width}px`;
  const sizes = (part) => tree.base.sizes.map((size) => size[part] * tree.zoom);
  Plotly.update(
    tree, { "marker.size": sizes(0), "textfont.size": sizes(1) }, { width, height: tree.base.height * tree.zoom },
  );
}

/** The figure on paper: dark text on white, with its legend, at its own size. */
function onPaper(id) {
  const plot = plotOf(id);
  const layout = structuredClone(plot.layout);
  const { width, height } = plot.getBoundingClientRect();
  const legend = layout.legend?.y < 0 ? 90 : 0;
  Object.assign(layout, {
    width, height: height + legend, paper_bgcolor: "#ffffff", plot_bgcolor: "#ffffff", showlegend: true,
    font: { ...layout.font, color: "#1F2937" }, margin: { ...layout.margin, b: (layout.margin?.b ?? 0) + legend },
  });
  return { data: structuredClone(plot.data), layout };
}

async function saveFigure(id, format) {
  const figure = onPaper(id), { width, height } = figure.layout;
  if (format !== "html") {
    await Plotly.downloadImage(figure, { format, width, height, scale: format === "png" ? 2 : 1, filename: `recap-${id}` });
    return;
  }
  const source = await (await fetch(`${window.gradio_config.root}/gradio_api/file=${props.plotly}`)).text();
  const json = JSON.stringify(figure).replaceAll("<", "\\u003c");
  const page = `<!doctype html><html lang="en"><meta charset="utf-8"><title>RECAP Inspector: ${id}</title>
<body style="margin:16px"><div id="figure"></div><script>${source}</` + `script>
<script>const figure = ${json}; Plotly.newPlot("figure", figure.data, figure.layout, {displaylogo: false});</` + "script></body></html>";
  const link = Object.assign(document.createElement("a"), {
    href: URL.createObjectURL(new Blob([page], { type: "text/html" })), download: `recap-${id}.html`,
  });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 60000);
}

// ---- the race -----------------------------------------------------------------------------------------------------

const race = {
  /** A board keeps its own replay: `at` is the seconds of decoding that it shows, null for the finish. */
  meet(board) {
    if (board.known === board.dataset.race) return;
    if (board.replay) this.stop(board);
    board.known = board.dataset.race;
    board.replay = { ...JSON.parse(board.dataset.race), at: null, frame: 0 };
    find("[data-race-at]", board).oninput = (event) => {
      this.stop(board);
      this.show(board, (event.target.value / 1000) * board.replay.ends);
    };
  },

  toggle(board) {
    const replay = board.replay;
    if (replay.frame) return this.stop(board);
    let last = performance.now();
    if (replay.at === null || replay.at >= replay.ends) replay.at = 0;
    const move = (time) => {
      const slower = Number(find("[data-race-speed]", board).value);
      this.show(board, replay.at + (time - last) / 1000 / slower);
      last = time;
      if (replay.at < replay.ends && board.isConnected) replay.frame = requestAnimationFrame(move);
      else this.stop(board);
    };
    find("[data-race-play]", board).textContent = "❚❚ Pause";
    replay.frame = requestAnimationFrame(move);
  },

  stop(board) {
    cancelAnimationFrame(board.replay.frame);
    board.replay.frame = 0;
    find("[data-race-play]", board).textContent = "▶ Replay the race";
  },

  /** The board as it was `seconds` after decoding began. */
  show(board, seconds) {
    const replay = board.replay;
    replay.at = Math.min(seconds, replay.ends);
    const most = Math.max(...replay.lanes.map((lane) => lane.counts.at(-1)));
    for (const lane of replay.lanes) {
      const after = lane.times.findIndex((time) => time > replay.at);
      const at = (after < 0 ? lane.times.length : after) - 1;
      const runner = find(`[data-runner="${CSS.escape(lane.name)}"]`, board);
      find("[data-count]", runner).textContent = lane.counts[at];
      find("[data-words]", runner).textContent = lane.text.slice(0, lane.chars[at]);
      find(".track i", runner).style.width = `${(100 * lane.counts[at]) / most}%`;
      runner.classList.toggle("finished", after < 0);
    }
    find("[data-race-clock]", board).textContent = `${replay.at.toFixed(2)} s`;
    find("[data-race-at]", board).value = replay.ends ? (1000 * replay.at) / replay.ends : 1000;
  },
};

follow();
