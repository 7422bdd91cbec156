#include "report.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>

#include "execution.h"
#include "sanitizers.h"

namespace emulated_cuda {

void report(const std::string& kind, const std::string& message) {
  report(kind, message, StackTrace::here());
}

void report(const std::string& kind, const std::string& message, const StackTrace& where) {
  const Quiet quiet;
  static std::mutex only_the_first;
  only_the_first.lock();  // never unlocked: the process ends here
  std::fflush(stdout);
  std::string all =
      "emulated CUDA: " + kind + "\n  " + message + "\n" + Execution::describe_current();
  if (const std::string calls = where.text("    "); !calls.empty()) {
    all += "  at\n" + calls;
  }
  std::fputs(all.c_str(), stderr);
  std::fflush(stderr);
  syscall(SYS_exit_group, kReportExitCode);  // _exit would let the sanitizers speak once more
  std::abort();
}

std::string text(CallSite site) {
  return short_path(site.file) + ":" + std::to_string(site.line);
}

std::string text(const char* format, ...) {
  const Quiet quiet;
  va_list arguments;
  va_start(arguments, format);
  va_list again;
  va_copy(again, arguments);
  std::string result(static_cast<std::size_t>(std::vsnprintf(nullptr, 0, format, again)), ' ');
  va_end(again);
  std::vsnprintf(result.data(), result.size() + 1, format, arguments);
  va_end(arguments);
  return result;
}

}  // namespace emulated_cuda
