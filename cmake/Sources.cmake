# How folders become the library.

# <build>/include/cleave/<folder> are links to the source folders, so sources and users write the same
# #include <cleave/ops/softmax.h>.
set(CLEAVE_FOLDERS core dist autograd ops nn optim)
function(cleave_make_include_tree)
  set(root ${PROJECT_BINARY_DIR}/include/cleave)
  file(MAKE_DIRECTORY ${root})
  foreach(entry ${CLEAVE_FOLDERS} cleave.h)
    if(NOT EXISTS ${root}/${entry})
      file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${entry} ${root}/${entry} SYMBOLIC)
    endif()
  endforeach()
endfunction()

# The sources under a folder, less those in the named folders directly below it.
function(cleave_find_sources out folder)
  cmake_parse_arguments(arg "" "" "EXCLUDE" ${ARGN})
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/${folder}/*.cpp)
  foreach(part ${arg_EXCLUDE})
    list(FILTER sources EXCLUDE REGEX "^${PROJECT_SOURCE_DIR}/${folder}/${part}/")
  endforeach()
  set(${out} "${sources}" PARENT_SCOPE)
endfunction()

function(cleave_add_objects target)
  add_library(${target} OBJECT ${ARGN})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
  target_include_directories(${target} PRIVATE ${PROJECT_BINARY_DIR}/include)
  target_link_libraries(${target} PRIVATE cleave_flags)
  set_property(GLOBAL APPEND PROPERTY CLEAVE_OBJECTS $<TARGET_OBJECTS:${target}>)
endfunction()

# cleave_add_folder(name folder [EXCLUDE below...] [LINK targets...]): the object library cleave_<name>.
function(cleave_add_folder name folder)
  cmake_parse_arguments(arg "" "" "EXCLUDE;LINK" ${ARGN})
  cleave_find_sources(sources ${folder} EXCLUDE ${arg_EXCLUDE})
  if(sources)
    cleave_add_objects(cleave_${name} ${sources})
    target_compile_definitions(cleave_${name} PRIVATE $<$<BOOL:${CLEAVE_ISA_X86}>:CLEAVE_ISA_X86=1>)
    target_link_libraries(cleave_${name} PRIVATE ${arg_LINK})
  endif()
endfunction()

function(cleave_add_loops folder)
  cleave_find_sources(sources ${folder})
  if(sources)
    foreach(isa ${CLEAVE_ISAS})
      cleave_add_objects(cleave_loops_${isa} ${sources})
      target_compile_definitions(cleave_loops_${isa} PRIVATE CLEAVE_ISA=${isa}
                                                             $<$<BOOL:${CLEAVE_ISA_X86}>:CLEAVE_ISA_X86=1>)
      target_compile_options(cleave_loops_${isa} PRIVATE ${CLEAVE_LOOP_FLAGS} ${CLEAVE_ISA_FLAGS_${isa}})
    endforeach()
  endif()
endfunction()

function(cleave_add_library)
  get_property(objects GLOBAL PROPERTY CLEAVE_OBJECTS)
  add_library(cleave ${objects})
  add_library(cleave::cleave ALIAS cleave)
  set_target_properties(cleave PROPERTIES LINKER_LANGUAGE CXX VERSION ${PROJECT_VERSION}
                                          SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_compile_features(cleave PUBLIC cxx_std_20)
  target_include_directories(cleave PUBLIC $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
                                           $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(cleave PRIVATE ${CLEAVE_LINK_LIBRARIES})
endfunction()
