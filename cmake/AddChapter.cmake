# add_chapter(NN name LIBRARIES lib... [SOURCES file...])
#
# Builds chapters/NN_name/{main.cpp, SOURCES} into one binary chNN_name. What a chapter may use is what it links; on which
# devices it runs is decided by the library that it is linked with in the end.
function(add_chapter number name)
  cmake_parse_arguments(ARG "" "" "LIBRARIES;SOURCES" ${ARGN})
  set(target ch${number}_${name})
  list(TRANSFORM ARG_SOURCES PREPEND ${number}_${name}/)
  add_library(${target}_code OBJECT ${number}_${name}/main.cpp ${ARG_SOURCES})
  target_link_libraries(${target}_code PUBLIC ${ARG_LIBRARIES} PRIVATE tp_flags)
  add_executable(${target} $<TARGET_OBJECTS:${target}_code>)
  if(TARGET tp_cuda)
    target_link_libraries(${target} PRIVATE ${target}_code tp_cuda tp_flags)
  else()
    target_link_libraries(${target} PRIVATE ${target}_code tp_cpu_only tp_flags)
  endif()
  set_property(GLOBAL APPEND PROPERTY TP_CHAPTERS ${target})
endfunction()
