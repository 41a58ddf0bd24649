"""course/authoring"""
