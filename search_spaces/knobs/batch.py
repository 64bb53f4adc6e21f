"""Knobs of the batch shape and the chunks of the log-prob pass."""

from __future__ import annotations

from functools import partial

from search_spaces.knobs.build import (
    ACTOR,
    FORWARD,
    FSDP,
    GENERATE,
    LOGPROB,
    MODEL,
    OF_VERL,
    TRAIN,
    UPDATE,
    cache,
    keyed,
    native,
    number,
    same,
    seam,
    switch,
    training,
)
from search_spaces.knobs.model import Effect, Restart

ACCUMULATION = "accumulation"
"""A value of ``steps_per_generation``: one generation for each update, the frameworks' default."""

_number = partial(number, restart=Restart.NONE)
_switch = partial(switch, restart=Restart.NONE)

KNOBS = (
    _number(
        name="micro_batch_size",
        unit="rows per rank",
        phases=FORWARD,
        memory=training(1, FORWARD),
        bounds=(1, 65536),
        frameworks=same(
            native("per_device_train_batch_size", 8),
            ms_swift=native("per_device_train_batch_size", 1),
            verl=native("actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu"),
        ),
        summary="completions in one forward and backward pass of a rank",
    ),
    _number(
        name="gradient_accumulation_steps",
        unit="micro-batches",
        phases=UPDATE,
        bounds=(1, 1048576),
        derived=True,
        frameworks=keyed(1, "gradient_accumulation_steps", verl=ACTOR + "ppo_mini_batch_size x n / (ranks x micro)"),
        summary="micro-batches in one optimizer update; follows from rows per update",
    ),
    _number(
        name="num_generations",
        unit="completions per prompt",
        effect=Effect.LEARNING,
        phases=FORWARD,
        memory=cache(0, GENERATE),
        bounds=(1, 4096),
        frameworks=same(native("num_generations", 8), verl=native(OF_VERL + "n", 1)),
        summary="group size, at the same rows per update",
    ),
    _number(
        name="steps_per_generation",
        unit="micro-batches",
        # An update of several generations is another average: TRL's default loss weighs each generation alike, however
        # many tokens it has (docs/decisions/0013-parity.md).
        effect=Effect.LEARNING,
        phases=GENERATE,
        memory=(*training(1, GENERATE), *cache(1, GENERATE)),
        bounds=(1, 1048576),
        words=(ACCUMULATION,),
        frameworks=same(
            native("steps_per_generation", follows="gradient_accumulation_steps"),
            verl=native("data.train_batch_size", follows="gradient_accumulation_steps"),
        ),
        summary="micro-batches one generation serves; fewer than an update's means smaller rollouts",
    ),
    _number(
        name="logprob_rows",
        unit="rows per rank",
        phases=LOGPROB,
        memory=training(1, LOGPROB),
        bounds=(1, 65536),
        frameworks={
            "trl": seam("GRPOTrainer._get_per_token_logps_and_entropies(batch_size=...)", follows="micro_batch_size"),
            "open_r1": seam("GRPOTrainer._get_per_token_logps(batch_size=...)", follows="micro_batch_size"),
            "ms_swift": seam("GRPOTrainer._get_per_token_logps_and_entropies", follows="micro_batch_size"),
            "verl": native(OF_VERL + "log_prob_micro_batch_size_per_gpu", follows="micro_batch_size"),
        },
        summary="completions in one no-grad log-prob pass",
    ),
    _number(
        name="logprob_token_chunk",
        unit="tokens",
        phases=TRAIN,
        memory=training(1, TRAIN),
        bounds=(16, 1048576),
        frameworks={
            "trl": seam("trl.kernels.chunked_logprob.TOKEN_CHUNK_SIZE", 4096),
            "verl": native(ACTOR + "entropy_from_logits_chunk_size", 2048),
        },
        summary="tokens of one tile of the LM-head projection",
    ),
    _number(
        name="logprob_vocab_chunk",
        unit="vocabulary entries",
        phases=TRAIN,
        memory=training(1, TRAIN),
        bounds=(128, 1048576),
        frameworks={"trl": seam("trl.trainer.utils._CHUNKED_LOGPROB_CHUNK_SIZE", 32768)},
        summary="vocabulary entries of one tile of the LM-head projection",
    ),
    _number(
        name="logprob_tokens",
        unit="tokens per GPU",
        phases=LOGPROB,
        memory=training(1, LOGPROB),
        bounds=(64, 16777216),
        needs={"dynamic_batching": (True,)},
        inactive=16384,
        frameworks={"verl": native(OF_VERL + "log_prob_max_token_len_per_gpu", follows="update_tokens")},
        summary="token budget of a log-prob pass with dynamic batching",
    ),
    _switch(
        name="dynamic_batching",
        phases=TRAIN,
        memory=training(0, TRAIN),
        frameworks={"verl": native(ACTOR + "use_dynamic_bsz", False)},
        summary="micro-batches are cut by tokens instead of rows",
    ),
    _number(
        name="update_tokens",
        unit="tokens per GPU",
        phases=UPDATE,
        memory=training(1, UPDATE),
        bounds=(64, 16777216),
        needs={"dynamic_batching": (True,)},
        frameworks={"verl": native(ACTOR + "ppo_max_token_len_per_gpu", 16384)},
        summary="token budget of an update's micro-batch with dynamic batching",
    ),
    switch(
        name="remove_padding",
        phases=TRAIN,
        memory=training(-1, TRAIN),
        frameworks=keyed(False, ms_swift="padding_free", verl=MODEL + "use_remove_padding", own={"verl": True}),
        summary="rows are packed without padding",
    ),
    _number(
        name="pad_to_multiple",
        unit="tokens",
        phases=TRAIN,
        memory=training(1, TRAIN),
        bounds=(1, 8192),
        frameworks={
            "trl": native("pad_to_multiple_of", 1),
            # pad_to_length with pad_to_length_bucket; 1 pads nothing, which is verl's own.
            "verl": native(FSDP + "pad_to_length_bucket", 1),
        },
        summary="lengths are rounded up, so that kernels are compiled for fewer shapes",
    ),
    _switch(
        name="dynamic_sampling",
        effect=Effect.LEARNING,
        phases=GENERATE,
        frameworks=keyed(False, ms_swift="dynamic_sample", verl="algorithm.filter_groups.enable"),
        summary="groups whose rewards are all the same are sampled again",
    ),
)
