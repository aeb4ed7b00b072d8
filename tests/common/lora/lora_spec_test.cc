#include "common/lora/lora_spec.h"

#include <limits>

#include <catch2/catch.hpp>

#include "tests/common/lora/small_model.h"

namespace tandem {
namespace {

using testing::SmallModel;
using Names = std::vector<std::string>;

LoraOptions Targets(Names modules, Names exclude = {}, Names parameters = {}) {
  return {.rank = 4,
          .alpha = 8,
          .target_modules = std::move(modules),
          .exclude_modules = std::move(exclude),
          .target_parameters = std::move(parameters)};
}

// The modules, without "model.layers."; or the error.
Names Chosen(const LoraOptions& options, bool tied = false) {
  const auto spec = MakeLoraSpec(SmallModel(tied), options);
  if (!spec.ok()) return {std::string(spec.status().message())};
  Names names;
  for (const LoraTarget& target : spec->targets) names.push_back(target.module.substr(13));
  return names;
}

std::string SpecRefusal(const LoraOptions& options, bool tied = false) {
  const auto spec = MakeLoraSpec(SmallModel(tied), options);
  if (spec.ok()) return "";
  REQUIRE(spec.status().code() == absl::StatusCode::kInvalidArgument);
  return std::string(spec.status().message());
}

TEST_CASE("all-linear means every linear layer but the head, in the order of tensors") {
  const Names layers = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                        "gate_proj", "up_proj", "down_proj"};
  for (bool tied : {false, true}) {
    for (const char* spelling : {"all-linear", "All-Linear"}) {
      const auto spec = MakeLoraSpec(SmallModel(tied), Targets({spelling}));
      REQUIRE(spec.ok());
      REQUIRE(spec->targets.size() == 14);
      for (size_t i = 0; i < 14; ++i) {
        const LoraTarget& target = spec->targets[i];
        const std::string block = i % 7 < 4 ? "self_attn." : "mlp.";
        REQUIRE(target.module ==
                "model.layers." + std::to_string(i / 7) + "." + block + layers[i % 7]);
        REQUIRE(target.weight == target.module + ".weight");
        REQUIRE(target.layer == static_cast<int>(i / 7));
      }
      REQUIRE(spec->target_modules ==
              Names{"down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"});
    }
  }
}

TEST_CASE("a target has the shape and place of its tensor, and adapters PEFT's names and shapes") {
  const ModelSpec model = SmallModel(true);
  const auto spec = MakeLoraSpec(model, Targets({"k_proj", "down_proj"}));
  REQUIRE(spec.ok());
  REQUIRE(spec->targets.size() == 4);
  for (const LoraTarget& target : spec->targets) {
    const TensorSpec tensor = HfTensors(model)[static_cast<size_t>(target.tensor)];
    REQUIRE(tensor.name == target.weight);
    REQUIRE(tensor.shape == std::vector<int64_t>{target.out, target.in});
  }
  const LoraTarget& down = spec->targets[1];
  REQUIRE(down.out == 8);
  REQUIRE(down.in == 12);
  REQUIRE(LoraTensorName(down, LoraMatrix::kA) ==
          "base_model.model.model.layers.0.mlp.down_proj.lora_A.weight");
  REQUIRE(LoraTensorName(down, LoraMatrix::kB) ==
          "base_model.model.model.layers.0.mlp.down_proj.lora_B.weight");
  REQUIRE(LoraTensorShape(down, LoraMatrix::kA, 4) == std::vector<int64_t>{4, 12});
  REQUIRE(LoraTensorShape(down, LoraMatrix::kB, 4) == std::vector<int64_t>{8, 4});
  REQUIRE(spec->scaling() == 2.0);
  REQUIRE(spec->parameters() == 2 * 4 * ((4 + 8) + (8 + 12)));
  REQUIRE(spec->Find("model.layers.1.self_attn.k_proj.weight") == &spec->targets[2]);
  REQUIRE(spec->Find("model.layers.1.self_attn.q_proj.weight") == nullptr);
}

TEST_CASE("entries are names, ends of names at a dot, or regular expressions of whole names") {
  REQUIRE(Chosen(Targets({"v_proj", "q_proj"})) == Names{"0.self_attn.q_proj", "0.self_attn.v_proj",
                                                         "1.self_attn.q_proj",
                                                         "1.self_attn.v_proj"});
  REQUIRE(Chosen(Targets({"model.layers.1.mlp.up_proj"})) == Names{"1.mlp.up_proj"});
  REQUIRE(Chosen(Targets({"1.mlp.up_proj"})) == Names{"1.mlp.up_proj"});
  REQUIRE(Chosen(Targets({R"(.*layers\.1\..*(q|o)_proj)"})) ==
          Names{"1.self_attn.q_proj", "1.self_attn.o_proj"});
  // Not at a dot, and not the whole name.
  REQUIRE(SpecRefusal(Targets({"proj"})) != "");
  REQUIRE(SpecRefusal(Targets({R"(layers\.1\..*(q|o)_proj)"})) != "");
}

TEST_CASE("an expression is read as Python reads it") {
  REQUIRE(Chosen(Targets({R"((?i).*\.1\..*(?P<which>Q|o)_proj)"})) ==
          Names{"1.self_attn.q_proj", "1.self_attn.o_proj"});
  REQUIRE(Chosen(Targets({R"(.*(?<=1\.mlp\.)[[u]p_proj\Z)"})) == Names{"1.mlp.up_proj"});
  REQUIRE(Chosen(Targets({"model.{,2}layers.1.mlp.(up|upper)_proj"})) == Names{"1.mlp.up_proj"});
  // A class of the characters [ : a l p h, and then a bracket.
  REQUIRE(SpecRefusal(Targets({"model.[[:alpha:]]*.1.mlp.up_proj"})) ==
          "target_modules: model.[[:alpha:]]*.1.mlp.up_proj matches no module of the model: name "
          "some of down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj, or take it out");
  REQUIRE_THAT(SpecRefusal(Targets({"(q|v_proj"})),
               Catch::Matchers::Contains("target_modules: regex '(q|v_proj' does not compile") &&
                   Catch::Matchers::Contains("or a name such as q_proj"));
}

TEST_CASE("excluded modules get none, whatever names them") {
  REQUIRE(Chosen(Targets({"all-linear"}, {"mlp.gate_proj", "up_proj", R"(.*\.0\..*)"})) ==
          Names{"1.self_attn.q_proj", "1.self_attn.k_proj", "1.self_attn.v_proj",
                "1.self_attn.o_proj", "1.mlp.down_proj"});
  REQUIRE(Chosen(Targets({".*(q_proj|head)"}, {"lm_head"})) ==
          Names{"0.self_attn.q_proj", "1.self_attn.q_proj"});
  REQUIRE(SpecRefusal(Targets({"q_proj"}, {"q_proj"})) ==
          "target_modules [q_proj] without exclude_modules [q_proj] leaves no module of the model: "
          "name some of down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj");
}

TEST_CASE("raw parameters are taken by the ends of their names") {
  REQUIRE(Chosen(Targets({}, {}, {"q_proj.weight"})) ==
          Names{"0.self_attn.q_proj", "1.self_attn.q_proj"});
  REQUIRE(Chosen(Targets({"q_proj"}, {},
                         {"model.layers.0.self_attn.q_proj.weight", "0.mlp.up_proj.weight"})) ==
          Names{"0.self_attn.q_proj", "0.mlp.up_proj", "1.self_attn.q_proj"});
  REQUIRE(
      SpecRefusal(Targets({}, {}, {"mlp.experts.gate_up_proj"})) ==
      "target_parameters: mlp.experts.gate_up_proj is not a parameter of this llama model: name "
      "one such as q_proj.weight, or leave the list out");
  REQUIRE(SpecRefusal(Targets({}, {}, {"input_layernorm.weight"})) ==
          "target_parameters: input_layernorm.weight matches model.layers.0.input_layernorm, which "
          "is a norm, not a linear layer: name other modules, or exclude it");
  ModelSpec qwen2 = SmallModel(true);
  qwen2.qkv_bias = true;
  const auto bias = MakeLoraSpec(qwen2, Targets({}, {}, {"q_proj.bias"}));
  REQUIRE(bias.status().message() ==
          "target_parameters: q_proj.bias matches model.layers.0.self_attn.q_proj.bias [8], and an "
          "adapter needs two dimensions: name a weight, such as q_proj.weight");
}

TEST_CASE("a list of whole names is kept where the end alone would say more") {
  const auto spec = MakeLoraSpec(SmallModel(true), Targets({"1.self_attn.q_proj", "v_proj"}));
  REQUIRE(spec.ok());
  REQUIRE(spec->target_modules == Names{"model.layers.1.self_attn.q_proj", "v_proj"});
}

TEST_CASE("what cannot have an adapter is refused by name") {
  const std::string known =
      ": name some of down_proj, gate_proj, k_proj, o_proj, q_proj, up_proj, v_proj, or take it "
      "out";
  REQUIRE(SpecRefusal(Targets({"q_proj", "qproj"})) ==
          "target_modules: qproj matches no module of the model" + known);
  REQUIRE(SpecRefusal(Targets({"all-linear"}, {"vision"})) ==
          "exclude_modules: vision matches no module of the model" + known);
  REQUIRE(SpecRefusal(Targets({"embed_tokens"}, {}), true) ==
          "target_modules: embed_tokens matches model.embed_tokens, which is an embedding that the "
          "LM head is tied to: an adapter would change both: name other modules, or exclude it");
  REQUIRE(SpecRefusal(Targets({"lm_head"}, {}), true) ==
          "target_modules: lm_head matches lm_head, which is the embedding, to which config.json "
          "ties it: an adapter would change both: name other modules, or exclude it");
  REQUIRE(SpecRefusal(Targets({"embed_tokens"})) ==
          "target_modules: embed_tokens matches model.embed_tokens, which is an embedding, not a "
          "linear layer: name other modules, or exclude it");
  REQUIRE(SpecRefusal(Targets({".*head"})) ==
          "target_modules: .*head matches lm_head, which is the LM head, which is served as it is: "
          "name other modules, or exclude it");
  REQUIRE(
      SpecRefusal(Targets({"model.norm"})) ==
      "target_modules: model.norm matches model.norm, which is a norm, not a linear layer: name "
      "other modules, or exclude it");
  REQUIRE_THAT(SpecRefusal(Targets({"(q_proj"})),
               Catch::Matchers::StartsWith("target_modules: regex '(q_proj' does not compile"));
  REQUIRE(SpecRefusal(Targets({""})) ==
          "target_modules has an empty entry, which names no module: take it out");
  REQUIRE(SpecRefusal(Targets({})) ==
          "target_modules and target_parameters name nothing: set target_modules, to "
          "all-linear for every linear layer but the LM head");
}

TEST_CASE("an entry that nothing answers to may be ignored, but not if nothing is left") {
  const ModelSpec model = SmallModel(true);
  const auto spec =
      MakeLoraSpec(model, Targets({"q_proj", "fc1"}, {"vision"}), UnmatchedEntry::kIgnore);
  REQUIRE(spec.ok());
  REQUIRE(spec->targets.size() == 2);
  REQUIRE_FALSE(MakeLoraSpec(model, Targets({"fc1"}), UnmatchedEntry::kIgnore).ok());
}

TEST_CASE("rank and alpha must be numbers above 0") {
  for (int64_t rank : {int64_t{0}, int64_t{-1}}) {
    LoraOptions options = Targets({"q_proj"});
    options.rank = rank;
    REQUIRE_THAT(SpecRefusal(options), Catch::Matchers::StartsWith("rank "));
  }
  for (double alpha : {0.0, -1.0, std::numeric_limits<double>::infinity(),
                       std::numeric_limits<double>::quiet_NaN()}) {
    LoraOptions options = Targets({"q_proj"});
    options.alpha = alpha;
    REQUIRE_THAT(SpecRefusal(options), Catch::Matchers::StartsWith("alpha "));
  }
}

TEST_CASE("two specs are the same in rank, alpha and targets, or the difference is named") {
  const ModelSpec model = SmallModel(true);
  const LoraSpec spec = *MakeLoraSpec(model, Targets({"q_proj", "v_proj"}));
  const LoraSpec same = *MakeLoraSpec(model, Targets({".*[qv]_proj"}));
  REQUIRE(SameLora(spec, "model.lora", same, "runs/a").ok());
  const auto difference = [&](LoraSpec other) {
    return std::string(SameLora(spec, "model.lora", other, "runs/a").message());
  };
  LoraSpec other = spec;
  other.rank = 8;
  REQUIRE(difference(other) == "model.lora has rank 4, runs/a has rank 8: set model.lora.rank=8");
  other = spec;
  other.alpha = 8.5;
  REQUIRE(difference(other) ==
          "model.lora has alpha 8, runs/a has alpha 8.5: set model.lora.alpha=8.5");
  REQUIRE(difference(*MakeLoraSpec(model, Targets({"q_proj"}))) ==
          "model.lora has an adapter on model.layers.0.self_attn.v_proj, runs/a has none: set "
          "model.lora.target_modules=[q_proj]");
  REQUIRE(difference(*MakeLoraSpec(model, Targets({"q_proj", "v_proj", "0.mlp.up_proj"}))) ==
          "runs/a has an adapter on model.layers.0.mlp.up_proj, model.lora has none: set "
          "model.lora.target_modules=[model.layers.0.mlp.up_proj, q_proj, v_proj]");
}

}  // namespace
}  // namespace tandem
