// The record of all communication of one rank. [introduced in chapter 01]
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "common/comm/call.h"
#include "common/core/table.h"

namespace tp {

// Bytes over the busiest link when the ring algorithm carries `payload_bytes` among `ranks` ranks,
// in one direction: payload * 2 (n-1)/n for all_reduce, * (n-1)/n for the operations that gather or
// scatter, * 1 for broadcast, send and recv, rounded up to whole bytes.
// Source: NVIDIA nccl-tests, doc/PERFORMANCE.md (factors from algbw to busbw).
std::int64_t link_bytes(Op op, std::int64_t payload_bytes, int ranks);

// Totals per (operation, label), with a fixed size once every label has been seen.
class Ledger {
 public:
  struct Totals {
    std::int64_t calls = 0;
    std::int64_t elements = 0;
    std::int64_t payload_bytes = 0;
    std::int64_t link_bytes = 0;
    double microseconds = 0;
  };

  void add(const Call& call, int ranks, double microseconds);

  // All calls of an operation, or of an operation under one label.
  Totals total(Op op) const;
  Totals total(Op op, std::string_view label) const;
  Totals total() const;

  // One row per operation and label, in the order of their first calls. Without times.
  Table to_table() const;

 private:
  struct Entry {
    Op op;
    std::string label;
    Totals totals;
  };
  // Few entries, and the next call is nearly always the entry after the last one.
  std::vector<Entry> entries_;
  std::size_t cursor_ = 0;
};

}  // namespace tp
