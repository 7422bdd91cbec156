// The texts of several requests, printed one behind the other while they grow together.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "common/core/report.h"
#include "common/model/stream_decoder.h"
#include "job.h"

namespace tp {

// The first text that is not finished is printed as it grows; the later ones wait for their turn.
class Texts {
 public:
  Texts(Report& report, const Job& job);

  void add(std::size_t index, std::int32_t token);
  // The text of an entry is complete, or the entry has failed.
  void finish(std::size_t index, const Completion& done);

 private:
  struct Text {
    explicit Text(StreamDecoder stream) : decoder(std::move(stream)) {}
    StreamDecoder decoder;
    std::string spoken;        // all of it
    std::size_t printed = 0;   // bytes of it
    std::string closing_line;  // empty as long as it grows
  };
  void print();
  void record(std::size_t index, const Completion& done);

  Report& report_;
  const Job& job_;
  std::vector<Text> texts_;
  std::size_t current_ = 0;
  bool begun_ = false;  // the prompt of the current one is printed
};

}  // namespace tp
