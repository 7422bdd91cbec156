# Libraries from the system's package manager (scripts/setup installs them on Debian).
find_package(Threads REQUIRED)
find_package(fmt REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(Catch2 REQUIRED)  # version 2 or 3, see tests/catch.h
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)

if(NOT TP_CUDA STREQUAL OFF)
  find_package(CUDAToolkit 12.0 QUIET)
  if(CUDAToolkit_FOUND)
    message(STATUS "CUDA toolkit ${CUDAToolkit_VERSION} found; this version of the project has no CUDA device, it is not used")
  elseif(TP_CUDA STREQUAL ON)
    message(FATAL_ERROR "TP_CUDA=ON, but no CUDA toolkit >= 12.0 was found; install one or configure with -DTP_CUDA=OFF")
  else()
    message(STATUS "No CUDA toolkit found: building for the CPU")
  endif()
endif()
