"""The page's prose, apart from the layout that shows it. Markdown, or plain sentences."""

from __future__ import annotations

from recap_engine.images import FILE_PIXELS, MOST_PICTURES, MOST_PIXELS

TITLE = "RECAP Inspector"
TAGLINE = (
    "Ask about a picture and watch one model answer three times: token by token, with Token Recycling, and with RECAP. "
    "The words are the same; the time is not. Below, every guess that was made on the way."
)

BEFORE_FIRST_RUN = """
<div class="empty">
<p><b>Nothing to inspect yet.</b> After the first run you will see here:</p>
<ol>
<li><b>Step by step</b> – where every token came from; at every step, which continuations were proposed, why they were,
and which of them the model accepted.</li>
<li><b>Race</b> – how fast each lane got its tokens, replayed at leisure, and where its time went.</li>
<li><b>Memories</b> – what they hold, what they find, and how often it is accepted.</li>
<li><b>Image-sensitive states</b> – where in the answer the picture matters, and whether guesses hold there.</li>
<li><b>The trace</b> – all of it as one file.</li>
</ol>
</div>
"""

EMBEDDED_MODEL = """
**What it can read.** The model that comes with this page is small (about eight million parameters) and was trained
only on drawn pictures: coloured shapes and simple objects, bar and pie charts, signs, receipts and small tables. Ask
in English, and for an answer at length if you like: describe, count one by one, compare, add up, write a table. It is
there so that you can see decoding at work on any laptop, without a network.

**What it cannot read.** Photographs, handwriting, screenshots, and anything else that was not drawn like its training
pictures. It will answer all the same, and it will be wrong; all lanes will agree on that wrong answer.
"""

HUB_MODEL = """
**A larger model.** Choose one in the tab “Models”, where the host of this page allows it, or start the page with the
name of one on the Hugging Face Hub, or a local folder:

```
RECAP_MODEL=Qwen/Qwen2.5-VL-7B-Instruct python app.py
```

Qwen2-VL, Qwen2.5-VL, Qwen3-VL, LLaVA-NeXT, LLaVA-1.5, SmolVLM / Idefics3 and text-only causal models are known. Such a
model reads photographs too; it wants a GPU.
"""

PICTURE_BOUNDS = f"""
**Pictures** of up to {FILE_PIXELS // 10**6} million pixels are opened; a model is shown at most {MOST_PIXELS // 10**6}
million of each, larger ones reduced to that, and no more than {MOST_PICTURES} to a question.
"""

HOW_TO_READ = """
**One step** is one pass of the model. It checks a whole tree of guesses at once, follows the branch that equals its own
choice at every depth, and adds one token of its own, the *bonus*. So the answer is the one that plain decoding gives;
a step that accepts three guesses just gave four tokens for the price of one pass.

**Where the guesses come from.** The model's own earlier predictions, kept in memories. Token Recycling looks them up by
the last token alone. RECAP also looks them up by the last two and three tokens, in memories that live only for this
picture and question, and weighs the sources by how sure the model was.

**A word with two colours of history.** Every token of the answer is coloured by the memory that proposed it, and groups
are steps; choose one to open its step. Then choose a node of the tree to see which keys were looked up, which records
they found, and what the model itself said there. A record marked *from another picture* was made when the model looked
at something else: one-token keys mix pictures, RECAP’s longer ones cannot, because they live for this request alone.

**RECAP+**, to be chosen in the settings, is not the paper’s method but this project’s variant of it. It keeps long
keys across requests, so all its memories persist (those under long keys are marked with triangles and dashed lines),
and it takes the next words of the prompt itself for predictions: an answer often repeats its question.

**Fair timing.** The lanes share one prefill and run one after another on the same device; which of them goes first
changes from run to run. A lane's clock stands still while the page is drawn.
"""

FIRST_STEPS = (
    "Choose an example, draw a scene or bring a picture; then press Run. New to all this? The Lesson tab explains it "
    "in a few short pages."
)
VARIANT = "RECAP+ is this project’s variant of RECAP: it keeps long keys across requests, and the prompt’s own words."
NO_LANES = "Choose at least one lane in the settings."
UPLOAD_ONLY = "Please upload the file: the server opens no other, and fetches nothing from elsewhere."
STILL_LOADING = "The model is still loading; the run begins when it is there."
UNEXPECTED = "Something went wrong on our side; the server's log has the details."
NO_MODEL = (
    "There is no model to ask: this page was started to show a saved trace. To ask something of your own, start it "
    "without --trace (python app.py)."
)
NO_RECORDINGS = (
    "The lesson’s recorded traces are not in assets/traces; python -m recap_engine record makes them anew, in a minute."
)
NO_MODEL_YET = "No model is loaded: choose one."
MODELS = (
    "One for everybody at this page. Another takes its place only once it is loaded; runs that have begun end with the "
    "one they began with."
)
NO_CHOICE = "The host of this page has chosen the model; on your own machine you choose it here."
ABOUT_MODELS = """
**Memory** is an estimate for the chosen precision: the weights, a tenth on top, and 0.3 GB; *fits now* compares it with
what is free while the model at hand is loaded. In float32 on an x86 CPU, loading needs that much and answering about
half, as weights that were published in half precision stay so in memory. To make room for a large model, load the
embedded one first. Precision *auto* is half precision on a GPU and float32, in which decoding is exactly lossless,
elsewhere. Licences are those that the model cards name; read the card before you rely on one. A gated model wants
`HF_TOKEN`.
"""
NO_MODEL_CHIP = "no model loaded"
LOADING_CHIP = "loading the model …"
WITHOUT_PICTURE = "No picture was given: the answer comes from the question alone."

STRIP = "One group is one step: one pass of the model. Choose a token to open its step."
TREE = (
    "What was proposed in this step, and what came of it; one pass checks it all. Choose a node to ask why it is there."
)
WHY = (
    "What each key recalled, beside what the model itself said at that place. Choose a node in the tree, here, or in "
    "the table; the bonus token tells why it was not drafted."
)
NO_TREES = (
    "No lane of this run drafted anything, so there are no trees: choose RECAP or Token Recycling in the settings."
)
RACE = "The engine's own timestamps, replayed: nothing runs again. The clock starts when decoding does."
SPEEDUP = "AR's time for the first n tokens over the lane's own time for as many; above 1× the lane is ahead."
SIZES = "The persistent memories start with what earlier requests left; the local ones with the prompt's own records."
HITS = (
    "Of the places in the trees from which something was drafted, how many keys of this length had a record, up to "
    "each step. Longer keys repeat less often; Token Recycling drafts only where its one key has a row."
)
ACCEPTANCE = "Of the candidates that a source proposed, how many the model accepted. Most of a tree is never reached."
DEPTHS = "RECAP’s tree is deep only along likely paths; Token Recycling’s has the same shape in every step."
SENSITIVE = (
    "One more pass over the finished answer, without the picture: at each token, how far does that move what the model "
    "would say next? Where it moves much, the picture decides, and guesses taken from other pictures go wrong most."
)
SPLIT = (
    "Of the states at which something was drafted: how often the draft was what the model chose. Other pictures move "
    "other states, so one answer says little; run some more to pool them."
)
SENSITIVITY_LIMITS = (
    "So the prompt keeps its form and length, and all else is equal. But grey is a picture too: the model may take it "
    "for a grey wall rather than for nothing, so a little movement says little."
)
SENSITIVITY_NEEDS_RUN = (
    "This needs the picture and the model. The trace came from a file, which holds neither; ask the question here to "
    "look."
)
SENSITIVITY_NEEDS_ITS_MODEL = "Another model was loaded since this answer; press Run again, then look."
SENSITIVITY_NEEDS_PICTURE = "This question was asked without a picture, so there is nothing to take away."

BENCH = (
    "One question says little, so ask many. Every lane answers the same drawn pictures, in turn and alone on the "
    "device; other visitors’ runs wait meanwhile."
)
BEFORE_FIRST_BENCH = """
<div class="empty">
<p><b>Nothing measured yet.</b> Two pictures of each suite take a few minutes on a laptop. Then you will see here:</p>
<ol>
<li><b>A table</b> – each lane’s speed over plain decoding with its interval, mean accepted tokens per step, and whether
its answers were the very same.</li>
<li><b>Figures</b> – lanes, suites and single questions, and what a pass over a tree costs on this machine.</li>
<li><b>Files</b> – a report that needs no network, the table as CSV, and the run as JSON, to be opened here again.</li>
</ol>
<p>Your own questions, more pictures, cold memories: <code>python -m recap_engine.bench --help</code>.</p>
</div>
"""
BENCH_BEGINS = "Measuring the step cost, warming every lane up and fitting budgets …"
BENCH_DONE = "Measured. Intervals are wide after few questions; more pictures make them narrow."
BENCH_PARTLY = "Stopped; what was measured until then is shown."
BENCH_STOPPED = "Stopped before the first question was through, so there is nothing to show."
BENCH_NOT_HERE = (
    "This page borrows its GPU for seconds at a time, which is too short to measure fairly; run python -m "
    "recap_engine.bench on a machine of your own, and open its run.json here."
)
NO_SUITES = "Choose at least one suite."
MEASURING_COST = "Measuring what a step costs on this machine (once; it takes some seconds) …"
COST_DONE = "Every tree’s budget is weighed against this curve: a further node must be worth the time it costs."
