"""The guided lesson as data: its pages, what each shows of a recorded trace, and where its statements come from.

Nothing here is a number: what stands in braces is computed from the trace when the page is shown (`lesson_facts.py`),
and which step is shown follows from a rule (`lesson_picks.py`). `lesson_view.py` puts a page on the screen.
"""

from __future__ import annotations

from dataclasses import dataclass

from app import lesson_picks as picks
from app.lesson_picks import Pick

# What a page can show beside its text, in this order. `pace`: tokens against time, of the page's lane alone; `race`: of
# all lanes; `cost`: time of a pass against nodes; `facts`: the step in words; `why`: the chosen node.
PANELS = ("pace", "race", "replay", "cost", "facts", "why", "legend", "tree", "mask", "strip")


@dataclass(frozen=True)
class Source:
    """A paper or a program that a page rests on."""

    authors: str
    title: str
    url: str


@dataclass(frozen=True)
class View:
    """What a page shows of which recorded trace."""

    trace: str  # a file of assets/traces, without its ending
    lane: str
    pick: Pick  # the rule that finds the step and the nodes to point at
    panels: frozenset[str]  # of PANELS


@dataclass(frozen=True)
class Page:
    """One page. Texts are Markdown without digits; {names} stand for facts of the view's step."""

    title: str
    body: str
    view: View
    question: str
    answer: str
    sources: tuple[Source, ...]


RECAP = Source(
    "Zhu et al.",
    "RECAP (we know its abstract; what we chose where it is silent is said)",
    "https://arxiv.org/abs/2611.05894",
)
TOKEN_RECYCLING = Source(
    "Luo et al., ACL 2025",
    "Turning Trash into Treasure: Accelerating Inference of Large Language Models with Token Recycling",
    "https://arxiv.org/abs/2408.08696",
)
LEVIATHAN = Source(
    "Leviathan, Kalman and Matias, 2023",
    "Fast Inference from Transformers via Speculative Decoding",
    "https://arxiv.org/abs/2211.17192",
)
CHEN = Source(
    "Chen et al., 2023",
    "Accelerating Large Language Model Decoding with Speculative Sampling",
    "https://arxiv.org/abs/2302.01318",
)
BLOCKWISE = Source(
    "Stern, Shazeer and Uszkoreit, 2018",
    "Blockwise Parallel Decoding for Deep Autoregressive Models",
    "https://arxiv.org/abs/1811.03115",
)
SPECINFER = Source(
    "Miao et al., 2023",
    "SpecInfer: Accelerating Generative LLM Serving with Tree-based Speculative Inference and Verification",
    "https://arxiv.org/abs/2305.09781",
)
MEDUSA = Source(
    "Cai et al., 2024",
    "Medusa: Simple LLM Inference Acceleration Framework with Multiple Decoding Heads",
    "https://arxiv.org/abs/2401.10774",
)
PROMPT_LOOKUP = Source(
    "Saxena, 2023", "Prompt Lookup Decoding", "https://github.com/apoorvumang/prompt-lookup-decoding"
)

PAGES = (
    Page(
        "One pass, one token",
        """
A language model writes its answer in small pieces called **tokens**: words, or parts of words. For every token it
runs once from its first layer to its last. That is one **pass**. The new token joins the text, and the next pass
begins. Always taking the most probable token is called *greedy* decoding; this page does nothing else.

So plain decoding (*autoregressive*, **AR**) pays a whole pass for each token. The answer on this page has {tokens}
tokens and took **{ar_steps} passes** of {ar_step_time} each. (The very first token comes out of the *prefill*, the
pass that reads the picture and the question.)

In such a pass a large model mostly waits: all of its weights have to travel from memory to the processor, and are
then used for a single token. Looking at several tokens in the same pass moves the same weights only once. This spare
room is what speculative decoding lives on.
""",
        View("description", "ar", picks.beginning, frozenset({"strip", "pace"})),
        "Imagine that every pass settled four tokens and took no longer. How long would this answer take?",
        "A quarter of {ar_time}, so {ar_quarter}. That is a dream: nobody guesses right all the time, and a pass over "
        "more tokens is never quite free. How near can we come?",
        (LEVIATHAN, CHEN),
    ),
    Page(
        "Guess, then check",
        """
Suppose that somebody *guesses* the next few tokens at no cost. The model, which we now call the **target**, need not
write them one by one any more: it reads all the guesses in **one pass** and says, behind each of them, what *it*
would have put next.

In the picture the square is the **root**, the last token that is already in the text: {root}. The circles are
guesses, each one following the one before: {line}

Go from left to right. While a guess is what the target chose, it is **accepted** (filled). The first one that isn’t
is **rejected** (hollow), and what hangs on it was never really in question (faint). The target’s own choice at that
place is still good; it comes on top, as the **bonus token** (diamond): {bonus}

Accepted here: {accepted_guesses}. With the bonus that makes **{emitted} for one pass**. (The colours and rings have a
meaning too; it comes later.)
""",
        View("description", "recap", picks.longest_line, frozenset({"tree"})),
        "And if already the first guess is wrong, was the pass for nothing?",
        "No. The target’s own choice behind the root is still there: the pass gives one token, just as in plain "
        "decoding. In this recording that happened in {zero_steps} steps. What is lost is only the time that the "
        "larger pass took longer.",
        (BLOCKWISE, LEVIATHAN, CHEN),
    ),
    Page(
        "Never another word",
        """
Letting guesses into an answer sounds risky. It is not. A guess gets in only if it *equals* the token that the target
itself chose at that place. So token for token the answer is the one that plain decoding gives: the method is
**lossless**. Bad guesses cost time, never words.

The highlighted guess, {node}, is the one that this lane was surest of among all its mistakes: it held {node_fused} of
the chances at its place. The target wanted {right}, so the guess was dropped. In this recording {same_answer}. And
where the model is wrong, as a small one sometimes is, all lanes are wrong in the same words.

Two things to know. This page decodes greedily; if answers are *sampled*, a rule by Leviathan et al. and Chen et al.
decides on each guess so that the probabilities of the answers stay the same. And computers round: in half precision,
a pass over more tokens may round a near tie the other way. When that happens, the page says where, and how near the
tie was.
""",
        View("description", "recap", picks.surest_mistake, frozenset({"facts", "legend", "tree"})),
        "What would happen to the answer if all the guesses were random?",
        "To the answer, nothing. Nearly every guess would be rejected, so that a step gives hardly more than one "
        "token, and its pass costs a little more than a plain one. It would be the same answer, somewhat later.",
        (BLOCKWISE, LEVIATHAN, CHEN),
    ),
    Page(
        "A tree beats a line",
        """
A single line of guesses ends at its first mistake. So why not guess *several* continuations at once? Those that begin
alike share their beginning, and together they form a **candidate tree**. Each circle is a **node**; how many steps it
is away from the root is its **depth**. The target still checks all of it in one pass.

Read a tree like this. Start at the square. The bold line with the filled circles is the **path** that was accepted,
up to the bonus token. A hollow circle was rejected: the target came to its fork and chose another token. A faint one
was never reached: it hangs on something rejected. The colours tell which memory made the guess; we come to them soon.

This tree gave **{emitted}**. Its best line alone would have given {line_emitted}: the highlighted nodes are what the
line lacked. Taking all trees of this answer, lines would have given {line_mat} tokens a step, and the trees gave
{tree_mat}.
""",
        View("description", "recap", picks.tree_beats_line, frozenset({"facts", "legend", "tree"})),
        "This tree has {nodes} nodes. How many of them could have been accepted, at the very most?",
        "As many as the tree is deep: {depth}. What is accepted is one path from the root downwards. All the other "
        "nodes are tried knowing that they will be thrown away; they are the price of being prepared.",
        (SPECINFER, MEDUSA),
    ),
    Page(
        "The tree mask",
        """
How can rivals be checked in the same pass without disturbing each other? All the nodes are put in one row behind the
text. What lets one token see another is called **attention**, and a **mask** says who may see whom. A node may see
the text so far, the root, its own ancestors in the tree, and itself. Nobody else. So each path is judged as if it
stood alone.

In the square chart each row is a node, and each column something that it may or may not see; filled means *may see*.
(The text before the root is left out: everybody sees it.) The row in full colour belongs to the last of the
highlighted nodes. To keep it small, only the {nodes} best nodes of this step’s tree are shown.

Two nodes of the same depth also get the same *position*, as if each were the only one: they are rivals for one place
in the answer.
""",
        View("description", "recap", picks.handy_tree, frozenset({"legend", "tree", "mask"})),
        "How many columns are filled in the row of {node}, and which ones?",
        "Its depth and one more, so {node_sees}: the root, its ancestors {ancestors}, and itself.",
        (SPECINFER, MEDUSA),
    ),
    Page(
        "Recycling: guesses for free",
        """
Who makes the guesses? Often a second, smaller *draft model*, which has to be trained, loaded and run. Cheaper is
*prompt lookup*: find the last few tokens earlier in the text, and copy what followed. **Token Recycling** (TR) uses
what is left over: at every place that the target checks, it computes a whole list of likely next tokens, and all but
one used to be thrown away.

TR keeps the best {row_size} of them in a table, as the row of the *last token* at that place. When the token comes
again, its row gives the guesses, the rows of the guesses give the guesses after them, and so on, breadth first, until
a tree of a fixed shape is full: here up to {tr_most} nodes in {tr_levels} levels. The table persists from one
question to the next.

Here the last token was {root}. The highlighted nodes are its row; {accepted_guesses} in a row came true.
""",
        View("description", "tr", picks.most_recycled, frozenset({"facts", "legend", "tree"})),
        "TR also keeps what the target said at rejected guesses. Isn’t that rubbish?",
        "No: it is the target’s own view of what follows that token, only not here. It is computed anyway, and the "
        "token may come again. Of the rows that this lane drafted from, {recycled_rejects} had been written at a "
        "rejected guess.",
        (TOKEN_RECYCLING, PROMPT_LOOKUP, LEVIATHAN),
    ),
    Page(
        "One token is a short memory",
        """
The key to a row of TR’s table is one token. But what follows {after}? That depends on what stood before it, and on
what is in the picture. The table knows nothing of either. It has one row for {after}: the latest, wherever that came
from.

Look at the highlighted guess and at the record behind it. That record {row_origin}. The target was {row_sure} sure of
{row_top} then. Here it wanted {right}.

RECAP’s abstract names this weakness: a table indexed by the last token alone mixes predictions that were made under
different pictures and beginnings. Reusing them fails most often at *image-sensitive* states, places where the
target’s prediction changes when the picture is taken away.{without_picture}
""",
        View("description", "tr", picks.misled, frozenset({"facts", "legend", "tree", "why"})),
        "Where do one-token keys do well all the same?",
        "Where the last token says nearly everything: inside a word, in a fixed phrase, after a word that is mostly "
        "followed by the same one. In this answer {first_guesses_right} of TR’s best guesses were right, counting the "
        "places that the target came to.",
        (RECAP, TOKEN_RECYCLING),
    ),
    Page(
        "Three keys, two lifetimes",
        """
**RECAP** files every prediction of the target under three keys: the last token, the last two, and the last three. For
the highlighted guess they are {after}, then {after_two}, then {after_three}.

The more tokens a key has, the better it knows the place. And the memories live differently. The one-token memory is
**persistent**: it goes on from question to question, like TR’s table; broad, always filled, and forgetful of where
things came from. (A new prediction is blended with what its key held there: our choice.) The two- and three-token
memories are **local**: they are made for one request and dropped after it. So all that they hold was said about *this*
picture.

{rival_place} In the tree the colours tell which key gave a guess its largest share; a ring means that several keys
proposed the same token.
""",
        View("description", "recap", picks.longer_key_right, frozenset({"facts", "legend", "tree", "why"})),
        "When an answer begins, the local memories are nearly empty. What does RECAP guess from then?",
        "From the one-token memory, which persists, and from what the target predicted along the prompt’s own words: "
        "those fill the memories before decoding begins (our choice, for TR too). Of the guesses accepted in the "
        "first third of the steps, {persistent_early} came mainly from the one-token memory; in the last third, "
        "{persistent_late}.",
        (RECAP,),
    ),
    Page(
        "Whom to trust",
        """
Often several keys find something, and it differs. Here {opinions}. RECAP combines them by **entropy-confidence
weighting**. Its abstract names that and gives no formula, so *what follows is our choice*, not the paper’s:

- *confidence*: the probability of the record’s best token, times one minus its entropy. **Entropy** says how spread
  out a prediction is: nothing means certain, one means that anything goes.
- *weight*: confidence times a factor for the key’s length, {length_factors} for one, two and three tokens; then all
  weights are scaled to a sum of one.
- *score* of a candidate: the sum, over the records, of weight times the chance that the record gives it. (Chances are
  the record’s probabilities, raised to the power of {temper} and scaled to a sum of one: what followed a key once is
  less sure to follow again than a single prediction says.)

For the highlighted {node} that gives {shares_sum}.
""",
        View("description", "recap", picks.orders_weighed, frozenset({"facts", "legend", "tree", "why"})),
        "Can a one-token record outweigh a three-token one?",
        "Yes, if it is more than {length_ratio} times as confident. More often it wins because the longer keys have "
        "nothing yet. Of this answer’s accepted guesses, {persistent_wins} had their largest share from the one-token "
        "memory.",
        (RECAP,),
    ),
    Page(
        "How large a tree?",
        """
A larger tree is right more often, but checking it takes longer. Each point of the chart is a step of this recording:
so many nodes, so much time for the pass. AR’s passes, with no guesses, took {ar_verify}; TR’s, with about {tr_size}
nodes, took {tr_verify}: that is {tr_verify_ratio} times as long (medians). A small processor shows a steep curve. A
large GPU, with more room to spare, shows a flatter one, and larger trees pay there.

So the right size depends on the machine. What we do in RECAP’s lane, by our own choice: measure this curve once, let
the tree grow best-first (next comes the candidate whose whole path is most probable), and keep the size that promises
most tokens a second. {budget_rule} The highlighted node is the least probable one of the largest tree: its path had a
chance of {node_path}.
""",
        View("table", "recap", picks.largest_tree, frozenset({"cost", "legend", "tree"})),
        "If a pass over a hundred nodes took no longer than one over a single token, would a hundred nodes give a "
        "hundred tokens?",
        "No. A step accepts one path at most, so no more guesses than the tree is deep. And as the best candidates "
        "come first, each further one adds less. A free pass would only mean that a large tree does no harm.",
        (LEVIATHAN, SPECINFER, RECAP),
    ),
    Page(
        "Reading the race",
        """
The chart has the engine’s own time stamps; the replay below it shows the same. Each stair is a step: as wide as the
step took, and as high as the tokens that it gave. AR’s stairs are one token high. A lane that guesses wins if its
stairs are more times as high than they are times as wide:

**speedup = tokens per step ÷ how many times as long a step takes**

- RECAP: {recap_mat} ÷ {recap_slower} = **{recap_speedup}**
- Token Recycling: {tr_mat} ÷ {tr_slower} = **{tr_speedup}**

This is one question on one machine. Another picture, model or processor gives other numbers, and sometimes another
winner. The paper’s own measurements were made with larger models; we don’t claim to have repeated them. What must
hold everywhere is that the answers are equal: here {same_answer}.
""",
        View("description", "recap", picks.most_given, frozenset({"race", "replay"})),
        "Token Recycling gives {tr_mat} tokens a step here. How much longer than AR’s may its steps take until "
        "nothing is won?",
        "Up to {tr_mat} times as long. Here they take {tr_slower} times as long, and so it decodes at {tr_speedup} "
        "times AR’s speed.",
        (RECAP, TOKEN_RECYCLING, LEVIATHAN),
    ),
    Page(
        "Now you",
        """
You have seen a recording. On the *Ask* tab you can make your own. Some things worth trying:

- Ask the same question twice. The second time the persistent memories are warm.
- Ask one question about two pictures. Then look, in *Step by step*, for guesses that came from another picture.
- Compare a long description or a table with a one-word answer. Recycling needs something that comes again.
- Set the budget to its smallest and to its largest value. Watch tokens per step, then watch time.

The reading that we started from left a question open: how does RECAP compare with TR beyond the paper’s single-turn
benchmarks? Here you see a *second turn* about the same picture: {emitted} from its best step. One answer proves
nothing; many, on your own model and data, would.

No model at hand? Every saved trace can be opened again, on any machine.
""",
        View("two-turn", "recap", picks.most_given, frozenset({"facts", "strip", "legend", "tree"})),
        "Before you press Run: for which answers do you expect RECAP to gain most over TR?",
        "A good guess: for those in which phrases come again and the picture decides what they say, as in a long "
        "description. There a local memory has seen the phrase with this picture, and a one-token row has not. Try "
        "it; where the measurement disagrees, believe the measurement.",
        (RECAP,),
    ),
)
