"""The page's prose, apart from the layout that shows it. Markdown, or plain sentences."""

from __future__ import annotations

TITLE = "RECAP Inspector"
TAGLINE = (
    "Ask about a picture and watch one model answer three times: token by token, with Token Recycling, and with RECAP. "
    "The words are the same; the time is not. Below, every guess that was made on the way."
)

BEFORE_FIRST_RUN = """
<div class="empty">
<p><b>Nothing to inspect yet.</b> After the first run you will see here:</p>
<ol>
<li><b>Timing</b> – how fast each lane got its tokens, and where its time went.</li>
<li><b>Candidate trees</b> – at every step, which continuations were proposed, which memory proposed them,
and which of them the model accepted.</li>
<li><b>The trace</b> – all of it as one JSON file.</li>
</ol>
</div>
"""

EMBEDDED_MODEL = """
**What it can read.** The model that comes with this page is small (about eight million parameters) and was trained only
on drawn pictures: coloured shapes and simple objects, bar and pie charts, signs, receipts and small tables. Ask in
English. It is there so that you can see decoding at work on any laptop, without a network.

**What it cannot read.** Photographs, handwriting, screenshots, and anything else that was not drawn like its training
pictures. It will answer all the same, and it will be wrong; the three lanes will agree on that wrong answer.
"""

HUB_MODEL = """
**A larger model.** Start the page with the name of a model on the Hugging Face Hub, or a local folder:

```
RECAP_MODEL=Qwen/Qwen2.5-VL-7B-Instruct python app.py
```

Qwen2-VL, Qwen2.5-VL, Qwen3-VL, LLaVA-NeXT, LLaVA-1.5, SmolVLM / Idefics3 and text-only causal models are known. Such a
model reads photographs too; it wants a GPU.
"""

HOW_TO_READ = """
**One step** is one pass of the model. It checks a whole tree of guesses at once, follows the branch that equals its own
choice at every depth, and adds one token of its own, the *bonus*. So the answer is the one that plain decoding gives;
a step that accepts three guesses just gave four tokens for the price of one pass.

**Where the guesses come from.** The model's own earlier predictions, kept in memories. Token Recycling looks them up by
the last token alone. RECAP also looks them up by the last two and three tokens, in memories that live only for this
picture and question, and weighs the sources by how sure the model was.

**Fair timing.** The lanes share one prefill and run one after another on the same device; which of them goes first
changes from run to run. A lane's clock stands still while the page is drawn.
"""

FIRST_STEPS = "Choose an example, draw a scene or bring a picture; then press Run."
NO_LANES = "Choose at least one lane in the settings."
STILL_LOADING = "The model is still loading; the run begins when it is there."
FORGOTTEN = "The persistent memories are empty: the next run starts cold."
UNEXPECTED = "Something went wrong on our side; the server's log has the details."
NO_MODEL = (
    "There is no model to ask: this page was started to show a saved trace. To ask something of your own, start it "
    "without --trace (python app.py)."
)
NO_MODEL_CHIP = "a saved trace · no model loaded"
WITHOUT_PICTURE = "No picture was given: the answer comes from the question alone."
