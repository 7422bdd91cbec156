# add_emulated_runs(name COMMAND command... TIMEOUT seconds ORDERS order... [SANITIZED "streams order"...]
#                   [ENVIRONMENT variable=value...] [PROPERTIES property value...])
# One test for each way in which emulated GPUs can run a program (tests/emulated_cuda/README.md): eager and lazy streams,
# each with the threads in each of these orders. SANITIZED: with sanitizers, which are slow and see more, these ways only.
function(add_emulated_runs name)
  cmake_parse_arguments(PARSE_ARGV 1 RUN "" TIMEOUT "COMMAND;ORDERS;SANITIZED;ENVIRONMENT;PROPERTIES")
  foreach(streams eager lazy)
    foreach(order ${RUN_ORDERS})
      if(TP_SANITIZE AND RUN_SANITIZED AND NOT "${streams} ${order}" IN_LIST RUN_SANITIZED)
        continue()
      endif()
      set(test ${name}_${streams}_${order})
      set(environment TP_EMULATED_STREAMS=${streams} TP_EMULATED_ORDER=${order} ${RUN_ENVIRONMENT})
      add_test(NAME ${test} COMMAND ${RUN_COMMAND})
      set_tests_properties(${test} PROPERTIES TIMEOUT ${RUN_TIMEOUT} ENVIRONMENT "${environment}" ${RUN_PROPERTIES})
    endforeach()
  endforeach()
endfunction()
