# Not a plugin: the code shared by datasets of text. Defines the target brim_language if the libraries exist.
include_guard(GLOBAL)
pkg_check_modules(UTF8PROC IMPORTED_TARGET GLOBAL libutf8proc)
if(NOT PCRE2_FOUND OR NOT UTF8PROC_FOUND)
  message(STATUS "PCRE2 or utf8proc not found (Debian: libpcre2-dev libutf8proc-dev): dataset/text is not built")
  return()
endif()
foreach(part IN ITEMS bpe cache chat_model decode encode files normalize read_model read_steps regex scan split tables
                      template_library template_methods template_print template_read template_run
                      template_scan template_shipped template_value text tokenizer tokenizer_gguf unigram)
  list(APPEND sources ${CMAKE_CURRENT_LIST_DIR}/${part}.c)
endforeach()
add_library(brim_language STATIC ${sources})
target_link_libraries(brim_language PUBLIC brim::sdk PkgConfig::PCRE2 PkgConfig::UTF8PROC PkgConfig::JANSSON m)
target_include_directories(brim_language PUBLIC ${CMAKE_CURRENT_LIST_DIR})
target_compile_definitions(brim_language PRIVATE _GNU_SOURCE)
brim_options(brim_language)
