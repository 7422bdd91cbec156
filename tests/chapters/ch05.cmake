foreach(tp 1 2 4 8 16)
  add_chapter_run(ch05_sharded_kv_cache EXIT 0 LAST PASS ARGS --tp ${tp})
endforeach()
foreach(tp 3 5 7)
  add_chapter_run(ch05_sharded_kv_cache EXIT 2 ERROR "16.*--uneven" ARGS --tp ${tp})
  add_chapter_run(ch05_sharded_kv_cache EXIT 0 LAST PASS ARGS --tp ${tp} --uneven)
endforeach()
add_chapter_run(ch05_sharded_kv_cache EXIT 0 LAST PASS ARGS --no-plan-hash --dtype bf16 --seed 5)
foreach(tp 2 3 4 8)
  add_chapter_run(ch05_sharded_kv_cache EXIT 3 ERROR "step 7, seq A: rank 0 block 3, rank 1 block 5"
                  ARGS --fault rank_chooses_own_blocks --uneven --tp ${tp})
  add_chapter_run(ch05_sharded_kv_cache EXIT 3 ERROR "step 7, place 0: rank 0 seq A, rank 1 seq B"
                  ARGS --fault shuffled_rows --uneven --tp ${tp})
  foreach(fault rank_chooses_own_blocks shuffled_rows)
    add_chapter_run(ch05_sharded_kv_cache EXIT 1 LAST FAIL ARGS --fault ${fault} --no-plan-hash --uneven --tp ${tp})
  endforeach()
endforeach()
add_mismatch_runs(ch05_sharded_kv_cache)
add_chapter_run(ch05_sharded_kv_cache EXIT 2 ERROR "rank_chooses_own_blocks with --tp 1.*--tp 2 or more"
                ARGS --fault rank_chooses_own_blocks --tp 1)
# The fault spoils the two sequences that meet in one block, and no other.
add_test(NAME ch05_spoils_A_and_B
         COMMAND ch05_sharded_kv_cache --fault rank_chooses_own_blocks --no-plan-hash)
set_tests_properties(ch05_spoils_A_and_B PROPERTIES PASS_REGULAR_EXPRESSION
  "A, heads[^\n]*DIFFERS[^\n]*\n  B, heads[^\n]*DIFFERS[^\n]*\n  C, heads[^\n]* ok\n  D, heads[^\n]* ok\n")
