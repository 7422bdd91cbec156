#include "texts.h"

#include <fmt/format.h>

namespace tp {

namespace {

// What is said goes on behind the prompt, unless that is made of special tokens only.
StreamDecoder::Start start_behind(const Tokenizer& tokenizer, const Request& request) {
  return tokenizer.decode(request.prompt_ids, true).empty() ? StreamDecoder::Start::of_text
                                                            : StreamDecoder::Start::in_the_middle;
}

}  // namespace

Texts::Texts(Report& report, const Job& job) : report_(report), job_(job) {
  for (const JobEntry& entry : job.entries)
    texts_.emplace_back(
        StreamDecoder(job.tokenizer, true, start_behind(job.tokenizer, entry.request)));
}

void Texts::add(std::size_t index, std::int32_t token) {
  Text& text = texts_[index];
  text.spoken += text.decoder.push(token);
  print();
}

void Texts::finish(std::size_t index, const Completion& done) {
  const JobEntry& entry = job_.entries[index];
  Text& text = texts_[index];
  text.spoken += text.decoder.finish();
  const std::string preempted =
      done.preemptions == 0 ? "" : fmt::format(", preempted {} times", done.preemptions);
  text.closing_line = done.reason == FinishReason::error
                          ? "    error: " + done.error
                          : fmt::format("    ({} prompt tokens, {} new tokens, ended by {}{})",
                                        entry.request.prompt_ids.size(), done.ids.size(),
                                        name_of(done.reason), preempted);
  record(index, done);
  print();
}

void Texts::print() {
  for (; current_ < texts_.size(); ++current_, begun_ = false) {
    Text& text = texts_[current_];
    const bool refused = !text.closing_line.empty() && text.spoken.empty();
    if (!begun_ && refused)
      report_.stream(fmt::format("[{}]", current_));  // the prompt may be what is wrong
    else if (!begun_)
      report_.stream(
          fmt::format("[{}] {}", current_,
                      job_.tokenizer.decode(job_.entries[current_].request.prompt_ids, false)));
    begun_ = true;
    if (text.printed < text.spoken.size()) report_.stream(text.spoken.substr(text.printed));
    text.printed = text.spoken.size();
    if (text.closing_line.empty()) return;
    report_.line("\n" + text.closing_line);
  }
}

void Texts::record(std::size_t index, const Completion& done) {
  const Request& request = job_.entries[index].request;
  const std::string path = fmt::format("/prompts/{}", index);
  report_.record(path + "/prompt", job_.tokenizer.decode(request.prompt_ids, false));
  report_.record(path + "/ids", request.prompt_ids);
  report_.record(path + "/new_ids", done.ids);
  report_.record(path + "/text", texts_[index].spoken);
  report_.record(path + "/finish_reason", name_of(done.reason));
  if (!done.error.empty()) report_.record(path + "/error", done.error);
}

}  // namespace tp
