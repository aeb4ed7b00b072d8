#include "controller/wire/message_json.h"

#include <google/protobuf/message.h>
#include <google/protobuf/util/json_util.h>

namespace tandem {

std::string MessageJson(const google::protobuf::Message& message) {
  google::protobuf::util::JsonPrintOptions options;
  options.preserve_proto_field_names = true;
  options.always_print_primitive_fields = true;
  std::string text;
  // Conversion fails only for an Any of an unknown type, which the API does not use.
  if (!google::protobuf::util::MessageToJsonString(message, &text, options).ok()) text = "{}";
  return text;
}

}  // namespace tandem
