# Not a plugin: the code shared by plugins that read pictures. Defines the target brim_pixels if the libraries exist.
include_guard(GLOBAL)
find_package(JPEG GLOBAL)
find_package(PNG GLOBAL)
if(NOT JPEG_FOUND OR NOT PNG_FOUND)
  message(STATUS "libjpeg or libpng not found (Debian: libjpeg62-turbo-dev libpng-dev): "
                 "dataset/image_folder, dataset/flowers102 and dataset/cub200 are not built")
  return()
endif()
add_library(brim_pixels STATIC ${CMAKE_CURRENT_LIST_DIR}/pixels.c ${CMAKE_CURRENT_LIST_DIR}/jpeg.c
                               ${CMAKE_CURRENT_LIST_DIR}/png.c ${CMAKE_CURRENT_LIST_DIR}/set.c)
target_link_libraries(brim_pixels PUBLIC brim::sdk JPEG::JPEG PNG::PNG)
target_include_directories(brim_pixels PUBLIC ${CMAKE_CURRENT_LIST_DIR})
target_compile_definitions(brim_pixels PRIVATE _GNU_SOURCE)
brim_options(brim_pixels)
