// The main function of all unit tests, with Catch2 version 2 or 3.
#if __has_include(<catch2/catch_all.hpp>)
#include <catch2/catch_session.hpp>
int main(int argc, char* argv[]) {
  return Catch::Session().run(argc, argv);
}
#else
#define CATCH_CONFIG_NO_POSIX_SIGNALS  // emulated GPUs open memory to kernels when a fault asks for it
#define CATCH_CONFIG_MAIN
#include <catch2/catch.hpp>
#endif
