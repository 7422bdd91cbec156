# Chapters on emulated GPUs (tests/emulated_cuda): virtual ranks that share a GPU, and a GPU for each rank with NCCL.
set(emulated_chapters 01_column_row_split 02_mlp_one_all_reduce 03_head_sharded_attention 04_gqa_kv_replication 05_sharded_kv_cache)
if(TP_SANITIZE)  # what is looked for shows with two ranks
  foreach(comm peer nccl)
    foreach(chapter ${emulated_chapters})
      add_chapter_run(ch${chapter}_emulated EXIT 0 LAST PASS ARGS --device cuda --comm ${comm} --tp 2)
    endforeach()
    add_chapter_run(ch06_mini_engine_emulated EXIT 0 LAST PASS ARGS --device cuda --comm ${comm} --max-tokens 4 --max-model-len 64)
  endforeach()
  return()
endif()
foreach(chapter ${emulated_chapters})
  foreach(comm peer nccl)
    foreach(tp 1 2 4 8)
      add_chapter_run(ch${chapter}_emulated EXIT 0 OUTPUT "device cuda .emulated" LAST PASS ARGS --device cuda --comm ${comm} --tp ${tp})
    endforeach()
  endforeach()
  # Work that is put off until somebody waits for it, and threads that start in another order.
  foreach(streams eager lazy)
    foreach(order reverse random)
      add_chapter_run(ch${chapter}_emulated EXIT 0 LAST PASS ARGS --device cuda --tp 2
                      ENVIRONMENT TP_EMULATED_STREAMS=set:${streams} TP_EMULATED_ORDER=set:${order})
    endforeach()
  endforeach()
  foreach(dtype bf16 f16)
    add_chapter_run(ch${chapter}_emulated EXIT 0 LAST PASS ARGS --device cuda --tp 2 --dtype ${dtype})
  endforeach()
  # What cannot work without a GPU for each rank, or without a GPU at all.
  add_chapter_run(ch${chapter}_emulated EXIT 77 ERROR "no GPU visible" ARGS --device cuda ENVIRONMENT TP_EMULATED_DEVICES=set:0)
endforeach()
foreach(fault concat_instead_of_sum skip_all_reduce shards_swapped activation_before_sum)
  add_chapter_run(ch02_mlp_one_all_reduce_emulated EXIT 1 LAST FAIL ARGS --device cuda --fault ${fault})
endforeach()
foreach(comm peer nccl)
  add_mismatch_runs(ch01_column_row_split_emulated --device cuda --comm ${comm})
endforeach()
add_chapter_run(ch01_column_row_split_emulated EXIT 2 ERROR "--comm nccl: 4 ranks need 4 GPUs, 2 visible" ARGS --device cuda --comm nccl --tp 4
                ENVIRONMENT TP_EMULATED_DEVICES=set:2)
add_chapter_run(ch01_column_row_split_emulated EXIT 0 OUTPUT "NCCL_TIMEOUT" ARGS --nccl-info ENVIRONMENT NCCL_TIMEOUT=set:5)

# The engine: as stored (bf16), widened to f32, one step at a time and captured, with chunks and preemptions.
foreach(comm peer nccl)
  foreach(tp 1 2 4 8)
    add_chapter_run(ch06_mini_engine_emulated EXIT 0 LAST PASS ARGS --device cuda --comm ${comm} --tp ${tp} --max-tokens 4 --max-model-len 64
                    --compare layers)
  endforeach()
  add_chapter_run(ch06_mini_engine_emulated EXIT 0 LAST PASS ARGS --device cuda --comm ${comm} --dtype f32 --kv-dtype f32 --max-tokens 4
                  --max-model-len 64 --compare layers)
endforeach()
add_chapter_run(ch06_mini_engine_emulated EXIT 0 OUTPUT "2 as a captured step: 1 launch of [0-9]+ operations" LAST PASS
                ARGS --device cuda --comm nccl --max-tokens 4 --max-model-len 64)
add_chapter_run(ch06_mini_engine_emulated EXIT 0 OUTPUT "operation by operation .eager.: as asked for" LAST PASS
                ARGS --device cuda --comm nccl --max-tokens 4 --max-model-len 64 --enforce-eager)
add_chapter_run(ch06_mini_engine_emulated EXIT 0 OUTPUT "eager.: the ranks meet on the host" LAST PASS
                ARGS --device cuda --comm peer --max-tokens 4 --max-model-len 64)
add_chapter_run(ch06_mini_engine_emulated EXIT 0 OUTPUT "[1-9][0-9]* preemptions" LAST PASS
                ARGS --device cuda --prompt-file ${CMAKE_CURRENT_SOURCE_DIR}/prompts.txt --block-size 4 --kv-blocks 14 --max-tokens 8
                --max-model-len 64 --chunked-prefill-size 4)
foreach(streams eager lazy)
  foreach(comm peer nccl)
    add_chapter_run(ch06_mini_engine_emulated EXIT 0 LAST PASS ARGS --device cuda --comm ${comm} --max-tokens 4 --max-model-len 64 --prompt "It was"
                    --prompt "She had been" ENVIRONMENT TP_EMULATED_STREAMS=set:${streams} TP_EMULATED_ORDER=set:reverse)
  endforeach()
endforeach()
foreach(fault skip_all_reduce wrong_kv_map unmasked_vocab_pads)
  add_chapter_run(ch06_mini_engine_emulated EXIT 1 LAST FAIL ARGS --device cuda --fault ${fault} --max-tokens 4 --max-model-len 64)
endforeach()
add_mismatch_runs(ch06_mini_engine_emulated --device cuda --max-tokens 2 --max-model-len 64)

# Models of all families, in f32 to the bound of their golden files, and as stored.
set(golden ${PROJECT_SOURCE_DIR}/tests/golden/models)
foreach(run "llama_all_biases 4" "llama_rope_linear 3 --uneven" "llama_rope_yarn 2" "llama2_mqa 4 --uneven" "llama3_rope_scaled 8"
            "mistral_sliding_window 5 --uneven" "qwen2_14_heads 7 --uneven" "qwen3_own_head_dim 4" "smollm2_9_heads 3")
  separate_arguments(run)
  list(POP_FRONT run model tp)
  add_chapter_run(ch06_mini_engine_emulated EXIT 0 LAST PASS ARGS --device cuda --model ${golden}/${model} --tp ${tp} ${run} --dtype f32 --kv-dtype f32
                  --max-tokens 6 --ignore-eos --compare layers)
  add_chapter_run(ch06_mini_engine_emulated EXIT 0 LAST PASS ARGS --device cuda --model ${golden}/${model} --tp ${tp} ${run} --dtype bf16
                  --max-tokens 6 --ignore-eos --compare layers)
endforeach()

# The plan is that of the CPU's engine, and says so where a GPU is asked for.
add_chapter_run(ch08_capacity_plan_emulated EXIT 2 ERROR "--device cuda with --verify: planned is the workspace of the CPU's engine"
                ARGS --verify --device cuda)

# A GPU's memory: the KV cache gets what the rest leaves of each rank's share, or what was asked for if that is there.
add_chapter_run(ch06_mini_engine_emulated EXIT 0 OUTPUT "KV cache: 1[0-9][0-9] blocks on every rank" LAST PASS ARGS --device cuda --comm peer
                --max-tokens 2 --gpu-memory-utilization 0.004)
add_chapter_run(ch06_mini_engine_emulated EXIT 0 LAST PASS ARGS --device cuda --max-tokens 16 --compare layers)
add_chapter_run(ch06_mini_engine_emulated EXIT 2 ERROR "--kv-memory-mib 64: the KV cache of rank [01] needs 67108864 bytes, but [0-9]+ are left"
                ARGS --device cuda --comm peer --kv-memory-mib 64 --gpu-memory-utilization 0.5 ENVIRONMENT TP_EMULATED_MEMORY_MIB=set:96)
