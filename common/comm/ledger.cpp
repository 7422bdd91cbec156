#include "common/comm/ledger.h"

#include <fmt/format.h>

namespace tp {

namespace {

void accumulate(Ledger::Totals& sum, const Ledger::Totals& part) {
  sum.calls += part.calls;
  sum.elements += part.elements;
  sum.payload_bytes += part.payload_bytes;
  sum.link_bytes += part.link_bytes;
  sum.microseconds += part.microseconds;
}

}  // namespace

std::int64_t link_bytes(Op op, std::int64_t payload_bytes, int ranks) {
  const auto share = [&](std::int64_t factor) {  // payload * factor * (n-1) / n, rounded up
    return (payload_bytes * factor * (ranks - 1) + ranks - 1) / ranks;
  };
  switch (op) {
    case Op::all_reduce:
      return share(2);
    case Op::all_gather:
    case Op::reduce_scatter:
    case Op::gather:
      return share(1);
    case Op::broadcast:
      return ranks > 1 ? payload_bytes : 0;
    case Op::send:
    case Op::recv:
      return payload_bytes;
    case Op::barrier:
    case Op::host_barrier:
    case Op::host_exchange:
    case Op::host_broadcast:
      return 0;
  }
  return 0;
}

void Ledger::add(const Call& call, int ranks, double microseconds) {
  const std::string_view label(call.label.data());
  std::size_t tried = 0;
  while (tried < entries_.size()) {
    cursor_ = cursor_ + 1 < entries_.size() ? cursor_ + 1 : 0;
    if (entries_[cursor_].op == call.op && entries_[cursor_].label == label) break;
    ++tried;
  }
  if (tried == entries_.size()) {
    entries_.push_back({call.op, std::string(label), {}});
    cursor_ = entries_.size() - 1;
  }
  const std::int64_t payload_bytes = call.elements * static_cast<std::int64_t>(size_of(call.dtype));
  accumulate(entries_[cursor_].totals, {1, call.elements, payload_bytes,
                                        link_bytes(call.op, payload_bytes, ranks), microseconds});
}

Ledger::Totals Ledger::total(Op op) const {
  Totals sum;
  for (const Entry& entry : entries_)
    if (entry.op == op) accumulate(sum, entry.totals);
  return sum;
}

Ledger::Totals Ledger::total(Op op, std::string_view label) const {
  Totals sum;
  for (const Entry& entry : entries_)
    if (entry.op == op && entry.label == label) accumulate(sum, entry.totals);
  return sum;
}

Ledger::Totals Ledger::total() const {
  Totals sum;
  for (const Entry& entry : entries_) accumulate(sum, entry.totals);
  return sum;
}

Table Ledger::to_table() const {
  Table table{"communication",
              {"operation", "label", "calls", "elements", "payload bytes", "ring link bytes"},
              {}};
  for (const Entry& e : entries_) {
    table.rows.push_back({std::string(name_of(e.op)), e.label, std::to_string(e.totals.calls),
                          std::to_string(e.totals.elements), std::to_string(e.totals.payload_bytes),
                          std::to_string(e.totals.link_bytes)});
  }
  return table;
}

}  // namespace tp
