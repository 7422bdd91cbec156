#include "stack_trace.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>

#include "sanitizers.h"

namespace emulated_cuda {
namespace {

// Whether the address is code of this library.
bool is_own(void* address) {
  Dl_info mine{};
  Dl_info other{};
  return dladdr(reinterpret_cast<void*>(&is_own), &mine) != 0 && dladdr(address, &other) != 0 &&
         mine.dli_fbase == other.dli_fbase;
}

bool begins_with(const std::string& line, const char* text) {
  return line.rfind(text, 0) == 0;
}

// What stands behind main, or behind the function of a thread.
bool is_beginning(const std::string& line) {
  return begins_with(line, "_start") || begins_with(line, "__libc_start") ||
         begins_with(line, "start_thread") || begins_with(line, "make_fcontext") ||
         begins_with(line, "Catch::");
}

// What stands between the lines that a reader wrote.
bool is_plumbing(const std::string& line) {
  return begins_with(line, "std::") ||
         line.find("emulated_cuda::launch_kernel") != std::string::npos ||
         line.find("cuda_runtime.h") != std::string::npos || begins_with(line, "(") ||
         begins_with(line, "_Z");
}

#if EMULATED_ASAN || EMULATED_TSAN

std::string source_line(void* address) {
  char buffer[512];
  __sanitizer_symbolize_pc(address, "%f %s:%l", buffer, sizeof buffer);
  return buffer;
}

#else

// Without unnamed namespaces and parameters.
std::string short_name(std::string function) {
  const std::string unnamed = "(anonymous namespace)::";
  for (std::size_t at = function.find(unnamed); at != std::string::npos;
       at = function.find(unnamed)) {
    function.erase(at, unnamed.size());
  }
  return function.substr(0, function.find('('));
}

// Asks addr2line, which comes with every compiler; without it, the symbol's name.
std::string source_line(void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) {
    return "(unknown)";
  }
  const auto offset =
      static_cast<std::uintptr_t>(static_cast<char*>(address) - static_cast<char*>(info.dli_fbase));
  char command[1024];
  std::snprintf(command, sizeof command, "addr2line -Cfe '%s' 0x%zx 2>/dev/null", info.dli_fname,
                offset);
  std::string function;
  std::string place;
  if (FILE* pipe = popen(command, "r")) {
    char line[512];
    if (std::fgets(line, sizeof line, pipe) != nullptr) {
      function.assign(line, std::strcspn(line, "\n"));
    }
    if (std::fgets(line, sizeof line, pipe) != nullptr) {
      place.assign(line, std::strcspn(line, " \n"));
    }
    pclose(pipe);
  }
  if (!function.empty() && function != "??") {
    return short_name(function) + (place.rfind("??", 0) == 0 ? "" : " " + short_path(place));
  }
  int status = -1;
  char* name = info.dli_sname == nullptr
                   ? nullptr
                   : abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
  std::string result = name != nullptr             ? name
                       : info.dli_sname != nullptr ? info.dli_sname
                                                   : "(no name)";
  std::free(name);
  return result;
}

#endif

}  // namespace

std::string short_path(const std::string& path) {
  std::size_t slash = path.rfind('/');
  slash = slash == std::string::npos || slash == 0 ? slash : path.rfind('/', slash - 1);
  return slash == std::string::npos ? path : path.substr(slash + 1);
}

StackTrace StackTrace::here() {
  const Quiet quiet;
  void* all[32];
  const int depth = backtrace(all, 32);
  StackTrace result;
  for (int i = 0; i < depth && result.count_ < static_cast<int>(result.frames_.size()); ++i) {
    if (result.count_ > 0 || !is_own(all[i])) {
      // A return address is the instruction after the call, which may belong to the next line.
      result.frames_[static_cast<std::size_t>(result.count_++)] = static_cast<char*>(all[i]) - 1;
    }
  }
  return result;
}

StackTrace StackTrace::at(void* code_address) {
  StackTrace result;
  result.frames_[0] = code_address;
  result.count_ = 1;
  return result;
}

std::string StackTrace::text(const char* indent) const {
  std::string result;
  for (int i = 0; i < count_; ++i) {
    const std::string line = source_line(frames_[static_cast<std::size_t>(i)]);
    if (is_beginning(line)) {
      break;
    }
    if (is_plumbing(line)) {
      continue;
    }
    result += indent + line + "\n";
  }
  return result;
}

}  // namespace emulated_cuda
