# Runs PROGRAM with ARGS; fails unless the exit code is EXIT, the last line matches LAST and the error
# output matches ERROR, where those are given.
execute_process(COMMAND ${PROGRAM} ${ARGS} RESULT_VARIABLE code OUTPUT_VARIABLE out ERROR_VARIABLE err)
string(STRIP "${out}" stripped)
string(REGEX REPLACE ".*\n" "" last "${stripped}")
if(NOT "${code}" STREQUAL "${EXIT}")
  message(FATAL_ERROR "exit code ${code} instead of ${EXIT}\n${out}\n${err}")
endif()
if(LAST AND NOT "${last}" MATCHES "^${LAST}")
  message(FATAL_ERROR "last line \"${last}\" instead of ${LAST}\n${out}")
endif()
if(ERROR AND NOT "${err}" MATCHES "${ERROR}")
  message(FATAL_ERROR "error output \"${err}\" does not match ${ERROR}")
endif()
