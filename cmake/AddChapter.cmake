# add_chapter(NN name LIBRARIES lib... [SOURCES file...] [FAULTS fault...])
#
# Builds chapters/NN_name/{main.cpp, SOURCES} into one binary chNN_name. What a chapter may use is what it links.
function(add_chapter number name)
  cmake_parse_arguments(ARG "" "" "LIBRARIES;SOURCES" ${ARGN})
  set(target ch${number}_${name})
  list(TRANSFORM ARG_SOURCES PREPEND ${number}_${name}/)
  add_executable(${target} ${number}_${name}/main.cpp ${ARG_SOURCES})
  target_link_libraries(${target} PRIVATE ${ARG_LIBRARIES} tp_flags)
  set_property(GLOBAL APPEND PROPERTY TP_CHAPTERS ${target})
endfunction()
