"""Random training setups: a model of a family that Tutti and Transformers know, a batch, a number format.

A draw depends on its seed and number alone. One that would not fit into the memory, or would take seconds a step, is made
smaller by formulas that are bounds, not estimates.
"""
import math
import random
import sys

# What the names of a family's config.json are, and what it can have.
#   key_heads: fewer heads for keys; head_size: heads that do not add up to the width; gated: three matrices in a
#   feed-forward; learned: an embedding for each position
CAUSAL = {"gpt2": {"learned"}, "opt": {"learned"}, "gpt_neox": set(), "phi": set(),
          "llama": {"key_heads", "head_size", "gated"},
          "mistral": {"key_heads", "head_size", "gated", "window"}, "qwen2": {"key_heads", "gated"},
          "qwen3": {"key_heads", "head_size", "gated"}, "gemma": {"key_heads", "head_size", "gated"}}
MASKED = {"bert": {"learned"}, "roberta": {"learned"}}
FAMILIES = {**CAUSAL, **MASKED}
HEAD_SIZES = (32, 40, 48, 64, 64, 64, 72, 80, 96, 112, 128, 128, 128, 160, 192, 256)
DTYPES = ("bf16",) * 6 + ("float32",)
NARROWEST, WIDEST = 512, 6144
LONGEST = {"bf16": 131072, "float32": 16384}
WORK = {"bf16": 3e14, "float32": 2e13}  # of a step, in FLOP: about a second of an H200
GIB = 2**30


def near(draw, low, high):
    """A whole number whose logarithm is spread evenly."""
    return round(math.exp(draw.uniform(math.log(low), math.log(high))))


def draw_shape(draw):
    """The sizes of a model, a batch and what is special about them, by plain names."""
    family = draw.choice(sorted(FAMILIES))
    has = FAMILIES[family]
    dtype = draw.choice(DTYPES)
    head_size = draw.choice(HEAD_SIZES)
    heads = near(draw, math.ceil(NARROWEST / head_size), WIDEST // head_size)
    hidden = heads * head_size
    key_heads = heads
    if "key_heads" in has:
        key_heads = draw.choice([count for count in range(1, heads + 1) if heads % count == 0])
    if "head_size" in has and draw.random() < 0.5:
        hidden = 64 * near(draw, NARROWEST // 64, WIDEST // 64)
    multiple = draw.choice((8, 64, 128))
    sequence = 2 ** draw.randint(7, 17)
    if draw.random() < 0.4:  # no power of two, and now and then no multiple of anything
        sequence = min(sequence - draw.randrange(sequence // 2), sequence)
        if draw.random() < 0.7:
            sequence = max(128, sequence // 64 * 64)
    sequence = min(max(128, sequence), LONGEST[dtype], 8192 if family in MASKED else 131072)
    window = None
    if "window" in has and draw.random() < 0.7:
        window = min(sequence, 2 ** draw.randint(7, 13))
    return {
        "family": family, "dtype": dtype, "heads": heads, "key_heads": key_heads, "head_size": head_size, "hidden": hidden,
        "feed_forward": multiple * round(hidden * draw.uniform(2, 5) / multiple),
        "layers": near(draw, 2, 40), "vocabulary": draw.choice((32000, 50257, 50304, 128256, near(draw, 5000, 260000))),
        "sequence": sequence, "batch": max(1, near(draw, 4096, 131072) // sequence), "window": window,
        "dropout": draw.choice((0.0, 0.0, 0.1)), "tied": draw.random() < 0.5}


def parameters_of(shape):
    """Without biases and norms, which are few."""
    has, hidden = FAMILIES[shape["family"]], shape["hidden"]
    attention = 2 * hidden * shape["head_size"] * (shape["heads"] + shape["key_heads"])
    feed_forward = (3 if "gated" in has else 2) * hidden * shape["feed_forward"]
    embeddings = shape["vocabulary"] * hidden * (1 if is_tied(shape) else 2)
    if "learned" in has:
        embeddings += shape["sequence"] * hidden
    return shape["layers"] * (attention + feed_forward) + embeddings


def is_tied(shape):
    return shape["tied"] or shape["family"] in ("gemma", "opt", "bert", "roberta")


def flops_of(shape):
    """Of a step, forward and backward: six for each parameter of a product and token, and the scores, of which a causal
    model needs half and a window what it sees."""
    tokens, sequence = shape["batch"] * shape["sequence"], shape["sequence"]
    products = parameters_of(shape) - (0 if is_tied(shape) else shape["vocabulary"] * shape["hidden"])
    seen = sequence if shape["family"] in MASKED else sequence / 2
    seen = min(seen, shape["window"] or seen)
    return 6 * tokens * products + 12 * shape["layers"] * tokens * seen * shape["heads"] * shape["head_size"]


def memory_of(shape):
    """An upper bound of what either program takes: weights, gradients and states; what eager PyTorch keeps of a layer for
    the backward; the logits with their float32 copies; the mask of a window as PyTorch makes it; and libraries."""
    size, states = (2, 12) if shape["dtype"] == "bf16" else (4, 18)
    tokens = shape["batch"] * shape["sequence"]
    heads = 3 * (shape["heads"] + 2 * shape["key_heads"]) * shape["head_size"]
    layer = tokens * size * (10 * shape["hidden"] + heads + 4 * shape["feed_forward"])
    logits = tokens * shape["vocabulary"] * 14 if size == 2 else tokens * shape["vocabulary"] * 16
    mask = 3 * shape["batch"] * shape["sequence"] ** 2 if shape["window"] else 0
    return shape["layers"] * layer + logits + mask + states * parameters_of(shape) + 6 * GIB


def made_smaller(shape, memory):
    """The same, with a smaller batch, fewer layers, then shorter sequences, until it fits."""
    shape = dict(shape)
    while memory_of(shape) > memory or flops_of(shape) > WORK[shape["dtype"]]:
        if shape["batch"] > 1:
            shape["batch"] = max(1, shape["batch"] * 3 // 4)
        elif shape["layers"] > 2:
            shape["layers"] = max(2, shape["layers"] * 3 // 4)
        elif shape["sequence"] > 128:
            shape["sequence"] = max(128, shape["sequence"] // 2)
            shape["window"] = shape["window"] and min(shape["window"], shape["sequence"])
        elif shape["vocabulary"] > 5000:
            shape["vocabulary"] //= 2
        elif shape["feed_forward"] > 64:
            shape["feed_forward"] //= 2
        else:
            sys.exit(f"{memory / GIB:.1f} GiB are too little for any draw")
    return shape


def draw_setup(seed, number, memory):
    return made_smaller(draw_shape(random.Random(f"{seed}/{number}")), memory)


def config_of(shape):
    """config.json of Transformers, in the family's own words."""
    family, drop = shape["family"], shape["dropout"]
    config = {"model_type": family, "vocab_size": shape["vocabulary"], "tie_word_embeddings": is_tied(shape),
              "bos_token_id": 0, "eos_token_id": 0, "use_cache": False}
    if family == "gpt2":
        return {**config, "architectures": ["GPT2LMHeadModel"], "n_positions": shape["sequence"], "n_embd": shape["hidden"],
                "n_layer": shape["layers"], "n_head": shape["heads"], "n_inner": shape["feed_forward"], "resid_pdrop": drop,
                "embd_pdrop": drop, "attn_pdrop": drop}
    config.update({"hidden_size": shape["hidden"], "num_hidden_layers": shape["layers"],
                   "num_attention_heads": shape["heads"], "max_position_embeddings": shape["sequence"]})
    if family == "opt":
        return {**config, "architectures": ["OPTForCausalLM"], "ffn_dim": shape["feed_forward"],
                "word_embed_proj_dim": shape["hidden"], "dropout": drop, "attention_dropout": drop, "pad_token_id": None}
    config["intermediate_size"] = shape["feed_forward"]
    if family in MASKED:
        name = {"bert": "BertForMaskedLM", "roberta": "RobertaForMaskedLM"}[family]
        if family == "roberta":  # whose positions begin behind the padding's
            config.update({"max_position_embeddings": shape["sequence"] + 2, "pad_token_id": 1})
        return {**config, "architectures": [name], "hidden_dropout_prob": drop, "attention_probs_dropout_prob": drop}
    config["attention_dropout"] = drop
    if family == "gpt_neox":
        return {**config, "architectures": ["GPTNeoXForCausalLM"], "hidden_dropout": drop}
    if family == "phi":
        return {**config, "architectures": ["PhiForCausalLM"], "resid_pdrop": drop, "embd_pdrop": drop}
    config["num_key_value_heads"] = shape["key_heads"]
    if "head_size" in FAMILIES[family]:
        config["head_dim"] = shape["head_size"]
    if family == "mistral":
        config["sliding_window"] = shape["window"]
    if family == "gemma":
        config["pad_token_id"] = None
    name = {"llama": "Llama", "mistral": "Mistral", "qwen2": "Qwen2", "qwen3": "Qwen3", "gemma": "Gemma"}[family]
    return {**config, "architectures": [f"{name}ForCausalLM"]}


def in_words(shape):
    heads = f"{shape['heads']}" if shape["heads"] == shape["key_heads"] else f"{shape['heads']}/{shape['key_heads']}"
    words = [f"{shape['family']} {shape['layers']} x {shape['hidden']}", f"ffn {shape['feed_forward']}",
             f"heads {heads} of {shape['head_size']}", f"vocabulary {shape['vocabulary']}",
             f"{shape['batch']} x {shape['sequence']}", shape["dtype"]]
    if shape["window"]:
        words.append(f"window {shape['window']}")
    if shape["dropout"]:
        words.append(f"dropout {shape['dropout']}")
    return ", ".join(words)
