#include "common/ops/ops_types.h"

#include <cmath>

#include "common/ops/numerics_layout.h"

namespace tandem {

int64_t KvBlockBytes(const AttentionShape& shape, DType dtype) {
  return shape.kv_heads * KvHeadBytes(shape.head_dim, static_cast<int64_t>(DTypeBytes(dtype)));
}

RopeTable MakeRopeTable(const std::vector<float>& inverse_frequencies, int64_t max_positions) {
  RopeTable table;
  table.half_dim = static_cast<int64_t>(inverse_frequencies.size());
  table.cos.reserve(static_cast<size_t>(table.half_dim * max_positions));
  table.sin.reserve(table.cos.capacity());
  for (int64_t position = 0; position < max_positions; ++position) {
    for (const float frequency : inverse_frequencies) {
      const double angle = static_cast<double>(position) * static_cast<double>(frequency);
      table.cos.push_back(static_cast<float>(std::cos(angle)));
      table.sin.push_back(static_cast<float>(std::sin(angle)));
    }
  }
  return table;
}

}  // namespace tandem
