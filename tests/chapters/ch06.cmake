foreach(tp 1 2 4 8)
  add_chapter_run(ch06_mini_engine EXIT 0 LAST PASS ARGS --tp ${tp} --max-tokens 16 --compare layers)
endforeach()
foreach(tp 3 5 6 7)
  add_chapter_run(ch06_mini_engine EXIT 2 ERROR "num_attention_heads=8.*usable sizes: 1, 2, 4, 8.*--uneven" ARGS --tp ${tp})
  add_chapter_run(ch06_mini_engine EXIT 0 LAST PASS ARGS --tp ${tp} --uneven --max-tokens 16 --compare layers)
endforeach()
add_chapter_run(ch06_mini_engine EXIT 0 LAST PASS ARGS --sampling model --seed 7 --dtype f32)
add_chapter_run(ch06_mini_engine EXIT 0 LAST DONE ARGS --max-tokens 2 --compare none)

# Several prompts: in any batch, in chunks or whole, and with blocks so few that some are preempted.
set(prompts ${CMAKE_CURRENT_SOURCE_DIR}/prompts.txt)
add_chapter_run(ch06_mini_engine EXIT 0 LAST PASS ARGS --prompt-file ${prompts})
add_chapter_run(ch06_mini_engine EXIT 0 LAST PASS ARGS --prompt-file ${prompts} --tp 4 --max-num-seqs 3 --chunked-prefill-size 4 --show-batch 2)
add_chapter_run(ch06_mini_engine EXIT 0 LAST PASS ARGS --prompt-file ${prompts} --chunked-prefill-size 0 --max-num-seqs 1)
add_chapter_run(ch06_mini_engine EXIT 0 OUTPUT "[1-9][0-9]* preemptions" LAST PASS ARGS --prompt-file ${prompts} --block-size 4 --kv-blocks 14)
add_chapter_run(ch06_mini_engine EXIT 0 OUTPUT "21 blocks on every rank: rank 1 limits, others have room for up to 42" LAST PASS
                ARGS --prompt-file ${prompts} --tp 3 --uneven --kv-memory-mib 1)

# A line that is no request ends alone; the exit code says so.
set(wrong ${CMAKE_CURRENT_SOURCE_DIR}/prompts_with_errors.txt)
add_chapter_run(ch06_mini_engine EXIT 1 OUTPUT "4: the line: no valid JSON.*5: the prompt has .* tokens.*6: token id 9999" LAST "FAIL .3 of"
                ARGS --prompt-file ${wrong} --max-tokens 4 --max-model-len 24)
add_chapter_run(ch06_mini_engine EXIT 1 LAST "FAIL .3 of 3" ARGS --prompt-file ${wrong} --max-tokens 4 --max-model-len 24 --compare none)

foreach(fault concat_instead_of_sum skip_all_reduce shards_swapped wrong_kv_map unmasked_vocab_pads)
  add_chapter_run(ch06_mini_engine EXIT 1 LAST FAIL ARGS --fault ${fault} --max-tokens 8)
endforeach()
add_chapter_run(ch06_mini_engine EXIT 3 ERROR "step 2, seq 0, token 0: rank 0 id [0-9]+, rank 1 id" ARGS --fault rank_local_sampling --max-tokens 8)
add_chapter_run(ch06_mini_engine EXIT 1 LAST FAIL ARGS --fault rank_local_sampling --max-tokens 8 --no-plan-hash)
add_chapter_run(ch06_mini_engine EXIT 3 ERROR "seq 0: rank 0 block 0, rank 1 block" ARGS --fault rank_chooses_own_blocks --prompt-file ${prompts} --max-tokens 8)
add_chapter_run(ch06_mini_engine EXIT 3 ERROR "rank 0 seq 0, rank 1 seq" ARGS --fault shuffled_rows --prompt-file ${prompts} --max-tokens 8)
foreach(fault rank_chooses_own_blocks shuffled_rows)
  add_chapter_run(ch06_mini_engine EXIT 1 LAST FAIL ARGS --fault ${fault} --prompt-file ${prompts} --max-tokens 8 --no-plan-hash)
  add_chapter_run(ch06_mini_engine EXIT 2 ERROR "two sequences that run together" ARGS --fault ${fault})
endforeach()
add_mismatch_runs(ch06_mini_engine --max-tokens 8)
add_chapter_run(ch06_mini_engine EXIT 2 ERROR "no row-parallel bias" ARGS --fault bias_added_tp_times)

add_chapter_run(ch06_mini_engine EXIT 2 ERROR "no two opposite ranks" ARGS --fault shards_swapped --tp 3 --uneven)
add_chapter_run(ch06_mini_engine EXIT 2 ERROR "from the second new token on" ARGS --fault rank_local_sampling --max-tokens 1)
add_chapter_run(ch06_mini_engine EXIT 1 LAST FAIL ARGS --fault rank_local_sampling --max-tokens 6 --no-plan-hash --tp 8)

# Numbers that no machine can hold are refused by name, not wrapped around.
add_chapter_run(ch06_mini_engine EXIT 2 ERROR "--kv-memory-mib 17592186044417: must be 1 to" ARGS --kv-memory-mib 17592186044417)
add_chapter_run(ch06_mini_engine EXIT 2 ERROR "--kv-blocks 750599937895183: must be 1 to" ARGS --kv-blocks 750599937895183)
add_chapter_run(ch06_mini_engine EXIT 2 ERROR "--block-size 9223372036854775807: must be 1 to" ARGS --block-size 9223372036854775807)
add_chapter_run(ch06_mini_engine EXIT 2 ERROR "--max-num-seqs 9223372036854775807: must be 1 to" ARGS --max-num-seqs 9223372036854775807)
add_chapter_run(ch06_mini_engine EXIT 2 ERROR "--max-tokens 9223372036854775808: is too large" ARGS --max-tokens 9223372036854775808)
add_chapter_run(ch06_mini_engine EXIT 2 ERROR "the KV caches of 2 ranks need .* GiB of memory; lower" ARGS --kv-blocks 134217727)
add_chapter_run(ch06_mini_engine EXIT 0 LAST PASS ARGS --max-num-batched-tokens 2147483647 --max-tokens 2)
add_chapter_run(ch06_mini_engine EXIT 2 ERROR "usable sizes: 1 to 8" ARGS --tp 9 --uneven)

# Models of other families, on as many ranks as suit them.
set(golden ${PROJECT_SOURCE_DIR}/tests/golden/models)
add_chapter_run(ch06_mini_engine EXIT 1 LAST FAIL ARGS --fault bias_added_tp_times --max-tokens 8 --model ${golden}/llama_all_biases)
foreach(run "llama_all_biases 4" "llama_rope_linear 3 --uneven" "llama_rope_yarn 2" "llama2_mqa 4 --uneven" "llama3_rope_scaled 8"
            "mistral_sliding_window 5 --uneven" "qwen2_14_heads 7 --uneven" "qwen3_own_head_dim 4" "smollm2_9_heads 3")
  separate_arguments(run)
  list(POP_FRONT run model tp)
  add_chapter_run(ch06_mini_engine EXIT 0 LAST PASS ARGS --model ${golden}/${model} --tp ${tp} ${run} --max-tokens 24 --ignore-eos --compare layers)
endforeach()

add_chapter_run(ch06_mini_engine EXIT 2 ERROR "--prompt-ids 1,4353: token id 4353" ARGS --prompt-ids 1,4353)
add_chapter_run(ch06_mini_engine EXIT 2 ERROR "10 tokens, but the KV cache holds 9" ARGS --max-model-len 9)
add_chapter_run(ch06_mini_engine EXIT 2 ERROR "10 tokens, but the KV cache holds 8" ARGS --kv-blocks 2 --block-size 4)
add_chapter_run(ch06_mini_engine EXIT 2 ERROR "--max-num-batched-tokens 7.*--block-size 0" ARGS --chunked-prefill-size 0 --max-num-batched-tokens 7 --block-size 0)
add_chapter_run(ch06_mini_engine EXIT 2 ERROR "rank 0 has 1048576 bytes for its KV cache, which is no room for one block" ARGS --kv-memory-mib 1 --block-size 4096)
add_chapter_run(ch06_mini_engine EXIT 2 ERROR "/nonexistent: no such folder" ARGS --model /nonexistent)
add_chapter_run(ch06_mini_engine EXIT 2 ERROR "/nonexistent: cannot be opened" ARGS --prompt-file /nonexistent)
add_chapter_run(ch06_mini_engine EXIT 2 ERROR "--chat alpaca: must be one of chatml, llama3" ARGS --chat alpaca)
add_chapter_run(ch06_mini_engine EXIT 2 ERROR "--chat chatml: the model's vocabulary has no token <.im_start.>" ARGS --chat chatml)
add_chapter_run(ch06_mini_engine EXIT 2 ERROR "--system: is a part of a chat" ARGS --system "Be brief.")

# The atlas: which bytes of the file each rank reads, and that it copies as many.
foreach(tp 1 2 4 8)
  add_chapter_run(ch06_mini_engine EXIT 0 OUTPUT "layers.5.*down_proj.weight.*model.norm.weight.*rank 0, bytes copied: [0-9]+  ok" LAST PASS
                  ARGS --explain-load --tp ${tp})
endforeach()
add_chapter_run(ch06_mini_engine EXIT 0 OUTPUT "rank 1, bytes copied: 3898368  ok" LAST PASS ARGS --explain-load --tp 3 --uneven)
add_chapter_run(ch06_mini_engine EXIT 0 OUTPUT "0  *5348352  *5348352  *10696704" LAST PASS ARGS --explain-load --dtype f32)
add_chapter_run(ch06_mini_engine EXIT 2 ERROR "usable sizes: 1, 2, 4, 8" ARGS --explain-load --tp 3)
add_chapter_run(ch06_mini_engine EXIT 2 ERROR "--fault skip_all_reduce with --explain-load" ARGS --explain-load --fault skip_all_reduce)
