# Flags of every target. Results must not depend on the compiler's mood: no fast-math, and a product
# and a sum are fused only where the code says so (std::fma), never by contraction.
add_library(tp_warnings INTERFACE)
target_compile_options(tp_warnings INTERFACE -Wall -Wextra -Wpedantic -Wshadow -Wconversion
                                          -Wno-sign-conversion -Wno-missing-field-initializers -ffp-contract=off)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(tp_warnings INTERFACE -Wno-restrict)  # false alarms of gcc 12 for std::string
endif()
if(TP_WERROR)
  target_compile_options(tp_warnings INTERFACE -Werror)
endif()
add_library(tp_flags INTERFACE)
target_link_libraries(tp_flags INTERFACE tp_warnings)
if(TP_SANITIZE)
  target_compile_options(tp_flags INTERFACE -fsanitize=${TP_SANITIZE} -fno-sanitize-recover=all
                                            -fno-omit-frame-pointer)
  target_link_options(tp_flags INTERFACE -fsanitize=${TP_SANITIZE})
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(tp_flags INTERFACE -Wno-maybe-uninitialized)  # false alarms in instrumented code
  endif()
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
