# Runs PROGRAM BUG and fails unless its output has the words and its exit code is not that of a success.
execute_process(COMMAND ${PROGRAM} ${BUG} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE err)
message("${out}${err}")
if(code STREQUAL 0 OR NOT "${out}${err}" MATCHES "${WORDS}")
  message(FATAL_ERROR "the bug ${BUG} was not caught: exit code ${code}, expected the words: ${WORDS}")
endif()
