# Headers, library, tools, and the three ways to find them: find_package(cleave), pkg-config, (add_subdirectory).

include(CMakePackageConfigHelpers)
set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/cleave)

foreach(folder ${CLEAVE_FOLDERS})
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/${folder} DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cleave
          FILES_MATCHING PATTERN "*.h"
          PATTERN internal EXCLUDE PATTERN cpu EXCLUDE PATTERN cuda EXCLUDE PATTERN mpi EXCLUDE PATTERN nccl EXCLUDE)
endforeach()
install(FILES ${PROJECT_SOURCE_DIR}/cleave.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/cleave)

install(TARGETS cleave EXPORT cleaveTargets)
install(EXPORT cleaveTargets NAMESPACE cleave:: DESTINATION ${package_dir})
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/cleaveConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/cleaveConfig.cmake INSTALL_DESTINATION ${package_dir})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/cleaveConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/cleaveConfig.cmake ${PROJECT_BINARY_DIR}/cleaveConfigVersion.cmake
        DESTINATION ${package_dir})

# pkg-config: a static library needs its dependencies on every link line, a shared one brings them itself. The flags
# name the folder of each library for the loader too, as Debian keeps several builds of OpenBLAS side by side.
set(CLEAVE_PC_LIBS)
set(implicit ${CMAKE_CXX_IMPLICIT_LINK_DIRECTORIES})
foreach(library ${CLEAVE_LINK_LIBRARIES})
  get_filename_component(folder "${library}" DIRECTORY)
  if(folder AND NOT folder IN_LIST implicit)
    string(APPEND CLEAVE_PC_LIBS " -Wl,-rpath,${folder}")
  endif()
  string(APPEND CLEAVE_PC_LIBS " ${library}")
endforeach()
if(BUILD_SHARED_LIBS)
  set(CLEAVE_PC_PUBLIC)
else()
  set(CLEAVE_PC_PUBLIC ${CLEAVE_PC_LIBS})
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/cleave.pc.in ${PROJECT_BINARY_DIR}/cleave.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/cleave.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION ${CMAKE_INSTALL_DATADIR}/doc/cleave)
