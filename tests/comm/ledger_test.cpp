#include "common/comm/ledger.h"

#include <chrono>
#include <string>
#include <vector>

#include "tests/catch.h"
#include "tests/comm/on_ranks.h"

using namespace tp;
using namespace std::chrono_literals;

namespace {

Call call_of(Op op, std::int64_t elements, DType dtype, const std::string& label) {
  Call call;
  call.op = op;
  call.elements = elements;
  call.dtype = dtype;
  call.set_label(label);
  return call;
}

}  // namespace

TEST_CASE("link bytes follow the factors of the ring") {
  struct Row {
    Op op;
    int ranks;
    std::int64_t bytes;  // of a payload of 1200 bytes
  };
  const std::vector<Row> rows = {
      {Op::all_reduce, 1, 0},    {Op::all_reduce, 2, 1200},    {Op::all_reduce, 3, 1600},
      {Op::all_reduce, 4, 1800}, {Op::all_reduce, 8, 2100},    {Op::all_gather, 1, 0},
      {Op::all_gather, 4, 900},  {Op::reduce_scatter, 4, 900}, {Op::gather, 4, 900},
      {Op::broadcast, 1, 0},     {Op::broadcast, 4, 1200},     {Op::send, 2, 1200},
      {Op::recv, 2, 1200},       {Op::barrier, 4, 0},          {Op::host_barrier, 4, 0},
      {Op::host_exchange, 4, 0}, {Op::host_broadcast, 4, 0}};
  for (const Row& row : rows) {
    INFO(name_of(row.op) << " on " << row.ranks << " ranks");
    CHECK(link_bytes(row.op, 1200, row.ranks) == row.bytes);
  }
  CHECK(link_bytes(Op::all_reduce, 4, 3) == 6);  // 5 and a third, rounded up
  CHECK(link_bytes(Op::all_gather, 1, 8) == 1);
  CHECK(link_bytes(Op::all_reduce, std::int64_t{1} << 40, 8) == 7 * (std::int64_t{1} << 38));
}

TEST_CASE("totals add the calls of an operation and of a label") {
  Ledger ledger;
  for (int layer = 0; layer < 3; ++layer) {
    ledger.add(call_of(Op::all_reduce, 100, DType::f32, "o_proj"), 4, 1.5);
    ledger.add(call_of(Op::all_reduce, 100, DType::bf16, "down_proj"), 4, 2);
  }
  ledger.add(call_of(Op::all_gather, 40, DType::f32, "o_proj"), 4, 0);
  const Ledger::Totals o_proj = ledger.total(Op::all_reduce, "o_proj");
  CHECK(o_proj.calls == 3);
  CHECK(o_proj.elements == 300);
  CHECK(o_proj.payload_bytes == 1200);
  CHECK(o_proj.link_bytes == 1800);
  CHECK(o_proj.microseconds == 4.5);
  CHECK(ledger.total(Op::all_reduce, "down_proj").payload_bytes == 600);
  CHECK(ledger.total(Op::all_reduce).calls == 6);
  CHECK(ledger.total(Op::all_reduce).payload_bytes == 1800);
  CHECK(ledger.total(Op::all_gather).link_bytes == 120);
  CHECK(ledger.total().calls == 7);
  CHECK(ledger.total(Op::all_reduce, "no such label").calls == 0);
  CHECK(ledger.total(Op::broadcast).calls == 0);
}

TEST_CASE("the table has a row per operation and label in the order of first calls") {
  Ledger ledger;
  // The order of later calls changes from step to step.
  const std::vector<std::string> labels = {"b", "a", "c", "a", "c", "b", "b", "a"};
  for (const std::string& label : labels)
    ledger.add(call_of(Op::all_reduce, 2, DType::f32, label), 2, 0);
  ledger.add(call_of(Op::barrier, 0, DType::f32, "a"), 2, 0);
  const Table table = ledger.to_table();
  REQUIRE(table.rows.size() == 4);
  CHECK(table.rows[0] == std::vector<std::string>{"all_reduce", "b", "3", "6", "24", "24"});
  CHECK(table.rows[1] == std::vector<std::string>{"all_reduce", "a", "3", "6", "24", "24"});
  CHECK(table.rows[2] == std::vector<std::string>{"all_reduce", "c", "2", "4", "16", "16"});
  CHECK(table.rows[3] == std::vector<std::string>{"barrier", "a", "1", "0", "0", "0"});
  for (const auto& row : table.rows) CHECK(row.size() == table.header.size());
}

TEST_CASE("a communicator records what it moves") {
  std::vector<Ledger> ledgers(4);
  const auto ends = on_ranks(4, 30s, [&](Communicator& comm, Group&) {
    std::vector<float> part(100), whole(400);
    std::vector<bf16> halves(50);
    const auto view = [](auto& x) {
      return view_of(x.data(), {static_cast<std::int64_t>(x.size())});
    };
    comm.all_reduce(view(part), "sum");
    comm.all_reduce(view(halves), "sum");
    comm.all_gather(view(part), view(whole), "all");
    comm.reduce_scatter(view(whole), view(part), "part");
    comm.gather(view(part), view(whole), 2, "root");
    comm.broadcast(view(part), 1, "copy");
    if (comm.rank() == 0) comm.send(view(part), 3, "pair");
    if (comm.rank() == 3) comm.recv(view(part), 0, "pair");
    comm.barrier("end");
    ledgers[static_cast<std::size_t>(comm.rank())] = comm.ledger();
  });
  REQUIRE(errors_of(ends) == "");
  for (std::size_t r = 0; r < 4; ++r) {
    const Ledger& ledger = ledgers[r];
    CHECK(ledger.total(Op::all_reduce, "sum").calls == 2);
    CHECK(ledger.total(Op::all_reduce, "sum").elements == 150);
    CHECK(ledger.total(Op::all_reduce, "sum").payload_bytes == 500);
    CHECK(ledger.total(Op::all_reduce, "sum").link_bytes == 750);
    CHECK(ledger.total(Op::all_gather).payload_bytes == 1600);
    CHECK(ledger.total(Op::all_gather).link_bytes == 1200);
    CHECK(ledger.total(Op::reduce_scatter).payload_bytes == 1600);
    CHECK(ledger.total(Op::reduce_scatter).link_bytes == 1200);
    CHECK(ledger.total(Op::gather).payload_bytes == 1600);
    CHECK(ledger.total(Op::gather).link_bytes == 1200);
    CHECK(ledger.total(Op::broadcast).payload_bytes == 400);
    CHECK(ledger.total(Op::send).payload_bytes == (r == 0 ? 400 : 0));
    CHECK(ledger.total(Op::recv).payload_bytes == (r == 3 ? 400 : 0));
    CHECK(ledger.total(Op::barrier).calls == 1);
  }
  // What rank 0 did, in order, as people read it.
  const Table table = ledgers[0].to_table();
  std::string labels;
  for (const auto& row : table.rows) labels += row[0] + " " + row[1] + "; ";
  CHECK(labels ==
        "all_reduce sum; all_gather all; reduce_scatter part; gather root; broadcast copy; "
        "send pair; barrier end; ");
}
