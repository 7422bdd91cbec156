#include "memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>

#include "device.h"
#include "report.h"
#include "sanitizers.h"

namespace emulated_cuda {
namespace {

constexpr std::size_t kPage = 4096;
constexpr std::size_t kAlignment = 256;    // what cudaMalloc promises
constexpr std::size_t kQuarantine = 4096;  // freed allocations that are remembered
constexpr unsigned char kFresh = 0xff;     // NaN in f32, bf16 and f16
constexpr std::uint16_t kCanary =
    0x7fff;  // NaN in each as well, and nothing that a kernel would write
constexpr std::size_t kPatternBytes = 16 << 20;

struct Memory {
  std::recursive_mutex mutex;
  std::map<std::uintptr_t, Allocation*> by_mapping;
  std::deque<Allocation*> quarantine;
  unsigned count = 0;
};

// Never destroyed: threads of ranks may outlive main.
Memory& memory() {
  static Memory* const result = new Memory;
  return *result;
}

std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

// A file of fresh memory, mapped copy-on-write again and again: gigabytes that cost nothing until
// they are written.
int pattern_file() {
  static const int file = [] {
    const int result = memfd_create("emulated_cuda_fresh", 0);
    const std::string fresh(kPatternBytes, static_cast<char>(kFresh));
    return result >= 0 &&
                   write(result, fresh.data(), fresh.size()) == static_cast<ssize_t>(fresh.size())
               ? result
               : -1;
  }();
  return file;
}

bool fill_fresh(char* first, std::size_t bytes) {
  if (bytes < kPatternBytes / 16) {
    std::memset(first, kFresh, bytes);
    return true;
  }
  for (std::size_t done = 0; done < bytes; done += kPatternBytes) {
    void* const mapped =
        mmap(first + done, std::min(kPatternBytes, bytes - done), PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_FIXED | MAP_NORESERVE, pattern_file(), 0);
    if (mapped == MAP_FAILED) {
      return false;
    }
  }
  return true;
}

struct Part {
  char* first;
  std::size_t bytes;
};
Part usable_pages(const Allocation& allocation) {
  return {allocation.mapping + kPage, allocation.mapping_bytes - 2 * kPage};
}
Part before(const Allocation& allocation) {
  const Part pages = usable_pages(allocation);
  return {pages.first, static_cast<std::size_t>(allocation.base - pages.first)};
}
Part behind(const Allocation& allocation) {
  const Part pages = usable_pages(allocation);
  char* const end = allocation.base + allocation.bytes;
  return {end, static_cast<std::size_t>(pages.first + pages.bytes - end)};
}

void protect(const Allocation& allocation, int protection) {
  const Part pages = usable_pages(allocation);
  mprotect(pages.first, pages.bytes, protection);
}

// The canary for a part that begins at this address. A part is shorter than a page.
const char* canary_for(const char* first) {
  static const std::array<std::uint16_t, kPage / 2 + 1> canary = [] {
    std::array<std::uint16_t, kPage / 2 + 1> result{};
    result.fill(kCanary);
    return result;
  }();
  return reinterpret_cast<const char*>(canary.data()) + reinterpret_cast<std::uintptr_t>(first) % 2;
}

void write_canary(Part part) {
  std::memcpy(part.first, canary_for(part.first), part.bytes);
  poison(part.first, part.bytes);
}

// The first damaged byte, or null. AddressSanitizer has seen the access itself, and would now see
// ours.
const char* damage([[maybe_unused]] Part part) {
#if !EMULATED_ASAN
  const char* const canary = canary_for(part.first);
  if (std::memcmp(part.first, canary, part.bytes) != 0) {
    return std::mismatch(part.first, part.first + part.bytes, canary).first;
  }
#endif
  return nullptr;
}

std::string describe_allocation(const Allocation& allocation) {
  const std::string place = allocation.device == kPinnedHost
                                ? "of pinned host memory"
                                : text("on device %d", allocation.device);
  return text("allocation %u (%zu bytes %s)", allocation.number, allocation.bytes, place.c_str());
}

std::string origins(const Allocation& allocation) {
  std::string result = "\n  allocated at\n" + allocation.allocated_at.text("    ");
  if (allocation.freed) {
    result += "  freed at\n" + allocation.freed_at.text("    ");
  }
  result.pop_back();
  return result;
}

}  // namespace

std::recursive_mutex& memory_mutex() {
  return memory().mutex;
}

Allocation* allocate(std::size_t bytes, int device) {
  const Quiet quiet;
  const std::lock_guard lock(memory().mutex);
  const std::size_t used = round_up(bytes, kAlignment);
  const std::size_t pages = round_up(used, kPage);
  void* const mapping = mmap(nullptr, pages + 2 * kPage, PROT_NONE,
                             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (mapping == MAP_FAILED) {
    return nullptr;
  }
  auto* const result = new Allocation;
  result->mapping = static_cast<char*>(mapping);
  result->mapping_bytes = pages + 2 * kPage;
  result->base = result->mapping + kPage + (pages - used);
  result->bytes = bytes;
  result->device = device;
  result->number = ++memory().count;
  result->allocated_at = StackTrace::here();
  protect(*result, PROT_READ | PROT_WRITE);
  if (!fill_fresh(result->mapping + kPage, pages)) {
    munmap(mapping, result->mapping_bytes);
    delete result;
    return nullptr;
  }
  write_canary(before(*result));
  write_canary(behind(*result));
  if (device != kPinnedHost) {
    protect(*result, PROT_NONE);
  }
  memory().by_mapping[reinterpret_cast<std::uintptr_t>(mapping)] = result;
  return result;
}

void free_allocation(Allocation& allocation) {
  const Quiet quiet;
  const std::lock_guard lock(memory().mutex);
  if (allocation.device == kPinnedHost) {
    open_allocation(allocation);
    close_allocation(allocation);  // looks at the canary
  }
  allocation.freed = true;
  allocation.freed_at = StackTrace::here();
  const Part pages = usable_pages(allocation);
  unpoison(pages.first, pages.bytes);
  // A new mapping in place of the old: the memory goes back to the system, the addresses do not.
  mmap(pages.first, pages.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
       -1, 0);
  memory().quarantine.push_back(&allocation);
  if (memory().quarantine.size() > kQuarantine) {
    Allocation* const oldest = memory().quarantine.front();
    memory().quarantine.pop_front();
    memory().by_mapping.erase(reinterpret_cast<std::uintptr_t>(oldest->mapping));
    munmap(oldest->mapping, oldest->mapping_bytes);
    delete oldest;
  }
}

Allocation* find_allocation(const void* address) {
  const std::lock_guard lock(memory().mutex);
  auto next = memory().by_mapping.upper_bound(reinterpret_cast<std::uintptr_t>(address));
  if (next == memory().by_mapping.begin()) {
    return nullptr;
  }
  Allocation* const found = std::prev(next)->second;
  return address < found->mapping + found->mapping_bytes ? found : nullptr;
}

void open_allocation(Allocation& allocation) {
  const std::lock_guard lock(memory().mutex);
  if (allocation.open_count++ == 0) {
    protect(allocation, PROT_READ | PROT_WRITE);
  }
}

void close_allocation(Allocation& allocation) {
  const std::lock_guard lock(memory().mutex);
  if (allocation.freed) {
    return;
  }
  const char* damaged = damage(before(allocation));
  if (damaged == nullptr) {
    damaged = damage(behind(allocation));
  }
  if (damaged != nullptr) {
    report("out of bounds write", "something wrote " + describe_address(damaged));
  }
  if (--allocation.open_count == 0 && allocation.device != kPinnedHost) {
    protect(allocation, PROT_NONE);
  }
}

std::string describe_address(const void* address) {
  const std::lock_guard lock(memory().mutex);
  const Allocation* const allocation = find_allocation(address);
  if (allocation == nullptr) {
    return "to memory that no device allocated";
  }
  const std::ptrdiff_t offset = static_cast<const char*>(address) - allocation->base;
  const auto bytes = static_cast<std::ptrdiff_t>(allocation->bytes);
  std::string where;
  if (offset < 0) {
    where = text("%td bytes before the start of ", -offset);
  } else if (offset >= bytes) {
    where = text("%td bytes past the end of ", offset - bytes);
  } else {
    where = text("at byte %td of ", offset);
  }
  return where + (allocation->freed ? "the freed " : "") + describe_allocation(*allocation) +
         origins(*allocation);
}

Allocation& require_device_memory(const void* address, const Need& need) {
  const Quiet quiet;
  const std::lock_guard lock(memory().mutex);
  Allocation* const found = find_allocation(address);
  const std::string what = text("%s: %s", need.function, need.argument);
  if (found == nullptr) {
    report("host pointer", what + text(" (%p) is not memory of a device", address));
  }
  if (found->freed) {
    report("use after free", what + " points " + describe_address(address));
  }
  if (!found->contains(address)) {
    report("out of bounds", what + " points " + describe_address(address));
  }
  const std::size_t there =
      found->bytes - static_cast<std::size_t>(static_cast<const char*>(address) - found->base);
  if (need.bytes > there) {
    report("out of bounds",
           what + text(" needs %zu bytes, but only %zu follow: it points ", need.bytes, there) +
               describe_address(address));
  }
  if (need.device != kAnyDevice && found->device != kPinnedHost &&
      !can_reach(need.device, found->device)) {
    report("memory of another device",
           what +
               text(" is used on device %d without access to its peer: it points ", need.device) +
               describe_address(address));
  }
  return *found;
}

}  // namespace emulated_cuda
