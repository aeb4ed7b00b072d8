// Qwen3, dense (Yang et al. 2025, arXiv 2505.09388; transformers' modeling_qwen3): q and k are
// normalised per head, and transformers' configuration has a head_dim of its own.
#include "common/model_spec/model_family.h"

namespace tandem {
namespace {
constexpr std::string_view kQwen3FalseKeys[] = {"attention_bias", "use_sliding_window"};
}  // namespace

extern const ModelFamily kQwen3Family = {.architecture = "Qwen3ForCausalLM",
                                         .qk_norm = true,
                                         .default_head_dim = 128,
                                         .exported_false = kQwen3FalseKeys};

}  // namespace tandem
