add_chapter_run(ch08_capacity_plan EXIT 0 OUTPUT "tp 4, pp 1 on 4 cards: a starting point, measure next.*from tp 8 to 16 the KV cache" LAST PASS ARGS --card a100-80g)
add_chapter_run(ch08_capacity_plan EXIT 0 LAST PASS ARGS --json ${CMAKE_CURRENT_BINARY_DIR}/ch08.json --report ${CMAKE_CURRENT_BINARY_DIR}/ch08.html)

# Plan and engine agree to the byte: every model on every number of ranks up to 8.
set(models ${PROJECT_SOURCE_DIR}/models/austen-5m)
file(GLOB golden_models ${PROJECT_SOURCE_DIR}/tests/golden/models/*/config.json)
foreach(config ${golden_models})
  cmake_path(GET config PARENT_PATH folder)
  list(APPEND models ${folder})
endforeach()
foreach(model ${models})
  add_chapter_run(ch08_capacity_plan EXIT 0 OUTPUT "tp 4, rank 3: activations.* ok" LAST PASS ARGS --verify --uneven --model ${model})
endforeach()
add_chapter_run(ch08_capacity_plan EXIT 0 OUTPUT "tp 1, most blocks in use: 20  ok" LAST PASS ARGS --verify)
add_chapter_run(ch08_capacity_plan EXIT 0 OUTPUT "tp 4, most blocks in use: 91  ok.*tp 4, preemptions: 0  ok" LAST PASS
                ARGS --verify --tp 4 --concurrency 7 --max-model-len 90 --block-size 7 --dtype f32)
add_chapter_run(ch08_capacity_plan EXIT 0 LAST PASS ARGS --verify --tp 2 --concurrency 1 --max-model-len 1)

# A wrong plan does not pass, on paper or against the engine.
foreach(fault kv_divided_by_tp overhead_counted_once)
  add_chapter_run(ch08_capacity_plan EXIT 1 LAST FAIL ARGS --fault ${fault})
endforeach()
foreach(fault kv_divided_by_tp overhead_counted_once tied_head_counted_twice)
  add_chapter_run(ch08_capacity_plan EXIT 1 LAST FAIL ARGS --fault ${fault} --verify)
endforeach()
add_chapter_run(ch08_capacity_plan EXIT 2 ERROR "kv_divided_by_tp: makes no difference here" ARGS --fault kv_divided_by_tp --tp 8)
add_chapter_run(ch08_capacity_plan EXIT 2 ERROR "tied_head_counted_twice: makes no difference here" ARGS --fault tied_head_counted_twice)
foreach(what operation count dtype root order missing)
  add_chapter_run(ch08_capacity_plan EXIT 3 ERROR "rank" ARGS --fault mismatched_collective:${what} --verify --tp 2)
endforeach()
add_chapter_run(ch08_capacity_plan EXIT 2 ERROR "mismatched_collective without --verify" ARGS --fault mismatched_collective)

# All that a machine has, and all reasons.
add_chapter_run(ch08_capacity_plan EXIT 0 LAST PASS
                OUTPUT "5 +1 +5 +- .*num_attention_heads=64.*num_key_value_heads=8 and tp=5.*intermediate_size=28672.*vocab_size=128256 is padded"
                ARGS --cards 8 --card h100-80g)
add_chapter_run(ch08_capacity_plan EXIT 0 LAST PASS OUTPUT "for tp 2, pp 1: 1846 blocks fit, the load needs 8192.*max-model-len 8192 to 4096.*tp 2 to 4 +30607 +.28761"
                ARGS --tp 2)
add_chapter_run(ch08_capacity_plan EXIT 0 LAST PASS OUTPUT "tp 4 to 8 +none +none +8192 +no +needs 16 cards, there are 8"
                ARGS --cards 8 --card rtx-4090)
add_chapter_run(ch08_capacity_plan EXIT 0 LAST PASS ARGS --cards 4 --uneven --dtype int4 --quant-group 32 --kv-dtype int8)
add_chapter_run(ch08_capacity_plan EXIT 0 LAST PASS OUTPUT "8 query heads and 4 KV heads.*tp 2: vocab_size=4353 is padded to 4354"
                ARGS --model ${PROJECT_SOURCE_DIR}/models/austen-5m/config.json --card rtx-4090 --tp 2 --pp 3 --num-key-value-heads 4)
add_chapter_run(ch08_capacity_plan EXIT 2 ERROR "num_key_value_heads=10 and tp=4.*usable sizes: 1, 2, 5, 10, 20, 40"
                ARGS --tp 4 --hidden-size 5120 --num-attention-heads 40 --num-key-value-heads 10 --head-dim 128 --intermediate-size 17920
                     --num-hidden-layers 40 --vocab-size 100352)
add_chapter_run(ch08_capacity_plan EXIT 2 ERROR "num_key_value_heads=8 and tp=6.*no obstacle: vocab_size=151552 is padded to 151554: 25259 rows"
                ARGS --tp 6 --hidden-size 12288 --num-attention-heads 96 --num-key-value-heads 8 --intermediate-size 36864 --num-hidden-layers 2
                     --vocab-size 151552)

# The default run is the lesson; a model of one's own is planned without it, and the answer comes last.
set(own_model --model ${PROJECT_SOURCE_DIR}/models/austen-5m)
add_chapter_run(ch08_capacity_plan EXIT 0 LAST PASS
                OUTPUT "What fits ==.*Article 001.*Article 003.*Smallest layout.*Compared with sums by hand ==\n[^=]*tp 4, pp 1, weight bytes" ARGS)
add_chapter_run(ch08_capacity_plan EXIT 0 LAST PASS
                OUTPUT "vocab_size % 8 = 1.\n\n== Smallest layout that holds the load ==\n[^=]*== Compared with sums by hand ==\n  parameters: 5344768  ok\n  cards of 15 that differ: 0  ok\n\nPASS"
                ARGS ${own_model} --card a100-40g)
add_chapter_run(ch08_capacity_plan EXIT 0 LAST PASS OUTPUT "Article 001.*tp 8, pp 1, cards of 8 that differ: 0  ok" ARGS ${own_model} --articles)
add_chapter_run(ch08_capacity_plan EXIT 1 LAST FAIL OUTPUT "cards of 15 that differ: 11  WRONG, expected 0" ARGS ${own_model} --fault overhead_counted_once)
add_chapter_run(ch08_capacity_plan EXIT 2 ERROR "--articles: --verify shows none" ARGS --verify --articles)

# One of a thing is one.
add_chapter_run(ch08_capacity_plan EXIT 0 LAST PASS
                OUTPUT ": 1 layer, hidden 64, 1 query head and 1 KV head of 64.*in blocks of 1 token\n.*load: 1 request of 1 token, 1 block each, 1 in all\n.*requests: of 1 token each.*requests, 1 is asked for"
                ARGS --hidden-size 64 --num-attention-heads 1 --num-key-value-heads 1 --intermediate-size 64 --num-hidden-layers 1 --vocab-size 64
                     --concurrency 1 --max-model-len 1 --block-size 1)

# Memory that is nominal only, where error correction takes some.
add_chapter_run(ch08_capacity_plan EXIT 0 LAST PASS OUTPUT "card l4-24g: 24.00 GiB[^\n]*\nwith ECC on, less than this nominal memory can be used: check nvidia-smi, and give --card-memory-gib\n"
                ARGS --card l4-24g --cards 8)
add_chapter_run(ch08_capacity_plan EXIT 0 LAST PASS OUTPUT "card a100-40g: 40.00 GiB[^\n]*\noverhead of each card" ARGS --card a100-40g)
add_chapter_run(ch08_capacity_plan EXIT 0 LAST PASS OUTPUT "card of the given memory: 22.49 GiB[^\n]*\noverhead of each card" ARGS --card-memory-gib 22.49)

# Bad input: all of it at once, before any work.
add_chapter_run(ch08_capacity_plan EXIT 2 ERROR "--card foo: must be one of.*--block-size 0.*--concurrency -1.*--cards 0.*--max-model-len 99999"
                ARGS --card foo --block-size 0 --concurrency -1 --cards 0 --max-model-len 99999)
add_chapter_run(ch08_capacity_plan EXIT 2 ERROR "--card-memory-gib nan: must be above 0" ARGS --card-memory-gib nan)
add_chapter_run(ch08_capacity_plan EXIT 2 ERROR "--max-model-len 9223372036854775808: is too large" ARGS --max-model-len 9223372036854775808)
add_chapter_run(ch08_capacity_plan EXIT 2 ERROR "hidden_size is missing.*num_attention_heads is missing" ARGS --vocab-size 100)
add_chapter_run(ch08_capacity_plan EXIT 2 ERROR "fewer layers than pp=100.*no tp is usable with --pp 100" ARGS --pp 100)
add_chapter_run(ch08_capacity_plan EXIT 2 ERROR "--cards 2: fewer than --tp 4 times --pp 1" ARGS --cards 2 --tp 4)
add_chapter_run(ch08_capacity_plan EXIT 2
                ERROR "--card: --verify plans for this machine.*--context-mib: --verify.*--communication-mib: --verify.*--activations-mib: --verify.*--gpu-memory-utilization: --verify"
                ARGS --verify --card rtx-4090 --context-mib 500 --communication-mib 0 --activations-mib 1 --gpu-memory-utilization 0.5)
add_chapter_run(ch08_capacity_plan EXIT 2 ERROR "--card-memory-gib: --verify plans for this machine" ARGS --verify --card-memory-gib 24)
add_chapter_run(ch08_capacity_plan EXIT 2 ERROR "--pp 2 with --verify.*--dtype int4 with --verify.*--kv-dtype fp8 with --verify"
                ARGS --verify --pp 2 --dtype int4 --kv-dtype fp8)
add_chapter_run(ch08_capacity_plan EXIT 2 ERROR "--concurrency 5000: at most 102 requests of 72 tokens, in blocks of 16, can be run on 4 sizes of tp.*or give one --tp"
                ARGS --verify --concurrency 5000)
add_chapter_run(ch08_capacity_plan EXIT 2 ERROR "--concurrency 100000: at most 64 requests of 500 tokens, in blocks of 16, can be run on one tp .*lower --concurrency, --max-model-len or --block-size\n"
                ARGS --verify --tp 2 --concurrency 100000 --max-model-len 500)
add_chapter_run(ch08_capacity_plan EXIT 2 ERROR "cannot be read|no valid JSON|cannot be opened|must be a config.json" ARGS --model /nonexistent)
