#include "common/model_spec/model_family.h"

#include <iterator>

namespace tandem {

#define TANDEM_REGISTERED(symbol, name) extern const ModelFamily symbol;
#include "model_families.inc"
#undef TANDEM_REGISTERED

namespace {

struct NamedFamily {
  const char* name;
  const ModelFamily* family;
};

constexpr NamedFamily kFamilies[] = {
#define TANDEM_REGISTERED(symbol, name) {name, &symbol},
#include "model_families.inc"
#undef TANDEM_REGISTERED
};

}  // namespace

const ModelFamily* FindModelFamily(const std::string& model_type) {
  for (const NamedFamily& known : kFamilies) {
    if (model_type == known.name) return known.family;
  }
  return nullptr;
}

std::string ModelFamilyNames() {
  std::string names;
  for (size_t i = 0; i < std::size(kFamilies); ++i) {
    if (i > 0) names += i + 1 == std::size(kFamilies) ? " or " : ", ";
    names += kFamilies[i].name;
  }
  return names;
}

}  // namespace tandem
