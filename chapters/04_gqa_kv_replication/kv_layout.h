// What a number of ranks makes of a model's KV cache: which rank keeps which heads, and how many
// bytes that is. Arithmetic only.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/core/options.h"
#include "common/core/report.h"
#include "common/core/table.h"
#include "common/device/head_shard.h"

namespace tp {

// The sizes of a model that decide about its KV cache. The defaults are the bundled model's.
struct KvShape {
  std::int64_t heads = 8;
  std::int64_t kv_heads = 2;
  std::int64_t head_dim = 32;
  std::int64_t layers = 6;
  std::int64_t context_tokens = 512;
  std::int64_t bits = 16;  // of one element: 16 for bf16

  std::string to_string() const;  // "8 query heads, 2 KV heads of 32, 6 layers, 512 tokens, ..."
};

// The options that set a shape.
std::vector<ExtraOption> shape_options(KvShape& shape);

// Errors: tp::Error (input) naming all the values that do not fit, one another or the ranks.
void check_shape(const KvShape& shape, const Options& options);

// The keys and values of `kv_heads` heads, for one token in one layer.
std::int64_t kv_bytes(const KvShape& shape, std::int64_t kv_heads);

// One entry per rank, in rank order.
struct KvLayout {
  std::vector<HeadShard> shards;
  std::vector<std::int64_t> query_heads, kv_heads, bytes;  // bytes as of kv_bytes

  // KV heads on all ranks together; what is above the model's number are copies.
  std::int64_t kv_heads_on_all() const;
  std::int64_t bytes_on_all() const;
};
KvLayout kv_layout(const KvShape& shape, int tp_size);

// One row per tp size, and a mark where more ranks no longer mean less KV for each. With
// `whole_context` also the MiB of all layers and tokens.
Table kv_by_tp_size(const std::string& name,
                    const KvShape& shape,
                    const std::vector<int>& tp_sizes,
                    bool whole_context);

// Prints the shape, how to read the table, and the table with the whole context.
void show_kv_by_tp_size(Report& report,
                        const std::string& name,
                        const KvShape& shape,
                        const std::vector<int>& tp_sizes);

// One row per KV head: the query heads that read it, and for each tp size the ranks that keep it.
Table ranks_of_kv_heads(const KvShape& shape, const std::vector<int>& tp_sizes);

// The KV head that each of the rank's query heads reads if the rank has loaded the KV heads `kv`:
// "0, 0, 1", or if they are many "0 x 8, 1 x 8".
std::string kv_heads_read(const HeadShard& shard, Range kv);

// By how much the rank with the most KV heads exceeds the mean, in per cent. (imbalance_percent says
// it of the query heads; KV heads are not dealt out evenly but follow them.)
double kv_imbalance_percent(const KvLayout& layout);

// Bytes in MiB, six digits.
std::string format_mib(std::int64_t bytes);

}  // namespace tp
