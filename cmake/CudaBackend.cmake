# The devices and communicators for GPUs, in one of two flavours from the same sources: for real GPUs, compiled by nvcc, and
# for emulated ones, compiled by the C++ compiler (tests/emulated_cuda).
#
# add_cuda_backend(name KERNELS target HEADERS target [NCCL])
#   name      the library that a program is linked with instead of tp_cpu_only
#   KERNELS   the library with the compiled kernels
#   HEADERS   what brings the headers and the libraries of CUDA, cuBLAS and NCCL
#   NCCL      with the communicator over NCCL
function(add_cuda_backend name)
  cmake_parse_arguments(ARG "NCCL" "KERNELS;HEADERS" "" ${ARGN})
  set(common ${PROJECT_SOURCE_DIR}/common)
  include(${common}/comm/cuda/sources.cmake)
  if(ARG_NCCL)
    list(APPEND TP_CUDA_COMM ${TP_CUDA_COMM_NCCL})
  else()
    list(APPEND TP_CUDA_COMM ${TP_CUDA_COMM_WITHOUT_NCCL})
  endif()
  list(TRANSFORM TP_CUDA_COMM PREPEND ${common}/comm/cuda/)
  set(device check.cpp cuda_device.cpp handles.cpp products.cpp step_arrays.cpp)
  list(TRANSFORM device PREPEND ${common}/device/cuda/)
  add_library(${name}_parts STATIC ${device} ${TP_CUDA_COMM})
  target_link_libraries(${name}_parts PUBLIC ${ARG_KERNELS} ${ARG_HEADERS} tp_parallel tp_topology PRIVATE tp_flags)
  # What other libraries call without linking it must be there in any case: objects, not an archive.
  file(GLOB sources CONFIGURE_DEPENDS ${common}/cuda_backend/*.cpp)
  add_library(${name} OBJECT ${sources})
  target_link_libraries(${name} PUBLIC ${name}_parts PRIVATE tp_flags)
endfunction()
